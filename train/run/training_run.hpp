#pragma once

#include <memory>

#include "workers/run/training.hpp"

namespace dynamiccl {

/// Carries out the training cells of a launch, for the worker's program (workers/run).
/// @param epoch_us when the samples' clock begins: start_us of a record is since then
std::unique_ptr<TrainingRunner> make_training_run(Communicator& comm, const RunConfig& config,
                                                  double epoch_us);

}  // namespace dynamiccl
