#include "train/exchange/gpu_server.hpp"

namespace dynamiccl {

Outliving<StepServer> make_gpu_server(Communicator& /*comm*/, const ExchangePlan& /*plan*/) {
  throw Error(ErrorKind::environment,
              "server_sums = \"gpu\": this trainer was built without CUDA; build it where nvcc is "
              "found, or take server_sums = \"host\"");
}

}  // namespace dynamiccl
