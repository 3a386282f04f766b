#include "train/codecs/queued/queued_codec.hpp"

namespace dynamiccl {

std::unique_ptr<QueuedCodec> make_queued_codec(Communicator& /*comm*/, const ExchangePlan& plan,
                                               float* /*gradients*/, TensorMemory& /*memory*/) {
  throw Error(ErrorKind::environment,
              std::string("compression = \"") + std::string(codec_row(plan.codec.codec).name) +
                  "\" on GPUs: this trainer was built without CUDA; build it where nvcc is found");
}

}  // namespace dynamiccl
