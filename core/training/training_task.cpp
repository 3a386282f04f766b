// What makes two training cells comparable.
#include "core/training/training.hpp"

namespace dynamiccl {

const std::vector<std::string>& training_task_settings() {
  static const std::vector<std::string> names{
      "model", "batch",  "sequence", "data",  "precision", "oracle",      "samples",    "evaluate",
      "steps", "epochs", "target",   "looks", "pace",      "slow_factor", "slow_worker"};
  return names;
}

bool trains_as_one(const TrainingSpec& spec) {
  return spec.compression == Codec::none && !spec.switch_to &&
         agreement_of(spec.method, spec.synchronisation) == WeightAgreement::every_step;
}

bool is_plain_sgd(const TrainingSpec& spec) {
  return trains_as_one(spec) && spec.lars == 0 && spec.rate_warmup == 0;
}

}  // namespace dynamiccl
