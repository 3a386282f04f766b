#pragma once

#include "tuner/state/state.hpp"

namespace dynamiccl {

// What publications say of when a training scales by itself, for plans of runs and for simulated
// jobs.

/// Between the published models that are called low and high, in ModelFacts::intensity()'s units:
/// BERT-Base at the published 128 tokens and ResNet-50.
double published_intensity_split();
/// C2C of a model between them at the published 32 workers and 64 samples, where it mattered.
double usual_c2c();

/// An intense model with 64 samples or more on each of 32 ranks or more: 99 % scaling was
/// published.
bool scales_by_itself(const State& state, int ranks);

}  // namespace dynamiccl
