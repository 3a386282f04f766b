#pragma once

#include "core/training/training.hpp"
#include "tuner/state/state.hpp"

namespace dynamiccl {

/// Fills what a training cell says of the job: model, batch, method, synchronisation. What the
/// cell does not decide stays as it is.
/// @param spec its servers are a number where they are one
void set_training(State& state, const TrainingSpec& spec, int workers);

}  // namespace dynamiccl
