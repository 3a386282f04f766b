#include "core/vocabulary/error.hpp"
#include "train/run/step_tuner.hpp"

namespace dynamiccl {

std::string why_no_step_tuner() {
  return "tuner: this program was built without agents; build it where Eigen 3.4 is found "
         "(libeigen3-dev)";
}

std::unique_ptr<StepTuner> make_step_tuner(Communicator& /*comm*/, const RunConfig& /*config*/,
                                           const TrainingSpec& /*spec*/,
                                           const ExchangePlan& /*plan*/) {
  throw Error(ErrorKind::input, why_no_step_tuner());
}

}  // namespace dynamiccl
