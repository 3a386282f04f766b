#include "tuner/state/published_scaling.hpp"

#include <cmath>

#include "train/spec/training.hpp"

namespace dynamiccl {

double published_intensity_split() {
  constexpr int kPublishedTokens = 128;
  static const double split =
      std::sqrt(facts_of(TrainingModel::bert_base, kPublishedTokens).intensity() *
                facts_of(TrainingModel::resnet50, kPublishedTokens).intensity());
  return split;
}

double usual_c2c() { return 2.0 / (64 * published_intensity_split()); }

bool scales_by_itself(const State& state, int ranks) {
  return state.model_intensity && *state.model_intensity >= published_intensity_split() &&
         ranks >= 32 && state.local_batch.value_or(0) >= 64;
}

}  // namespace dynamiccl
