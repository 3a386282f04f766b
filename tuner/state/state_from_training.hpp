#pragma once

#include "train/spec/training.hpp"
#include "tuner/state/state.hpp"

namespace dynamiccl {

/// Fills what a training cell with a tuner says of the job: model, batch, schedule; it sums by
/// BSP all-reduces of plain values. What the cell does not decide stays as it is.
/// @param spec its servers are a number where they are one
void set_training(State& state, const TrainingSpec& spec, int workers);

}  // namespace dynamiccl
