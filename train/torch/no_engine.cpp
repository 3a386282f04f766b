#include "train/torch/engine.hpp"

namespace dynamiccl {

std::string why_no_engine() {
  return "ddp needs libtorch 1.x with Gloo, as the distribution has it; this trainer was built "
         "with "
         "another one";
}

std::unique_ptr<EngineGroup> join_engine(const EngineMeeting& /*meeting*/) {
  throw Error(ErrorKind::environment, why_no_engine());
}

std::unique_ptr<DataParallelEngine> make_engine(EngineGroup& /*group*/,
                                                const std::vector<torch::Tensor>& /*parameters*/,
                                                Bytes /*bucket*/, bool& /*engaged*/) {
  throw Error(ErrorKind::environment, why_no_engine());
}

}  // namespace dynamiccl
