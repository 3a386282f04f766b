#include "core/vocabulary/error.hpp"
#include "workers/train/step_tuner.hpp"

namespace dynamiccl {

std::string why_no_step_tuner() {
  return "tuner: this program was built from the workers alone, without agents; build the whole "
         "(without DYNAMICCL_WORKERS_ONLY)";
}

std::unique_ptr<StepTuner> make_step_tuner(Communicator& /*comm*/, const RunConfig& /*config*/,
                                           const TrainingSpec& /*spec*/,
                                           const ExchangePlan& /*plan*/) {
  throw Error(ErrorKind::input, why_no_step_tuner());
}

}  // namespace dynamiccl
