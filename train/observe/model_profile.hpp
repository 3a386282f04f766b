#pragma once

#include <optional>
#include <vector>

#include "train/step/worker_step.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// What is known of a model on these ranks before any method runs; the same on every rank.
struct ModelProfile {
  std::vector<int> order;           ///< parameters as the first worker's backward pass ends them
  std::vector<std::size_t> counts;  ///< elements, in that order
  StepProfile step;                 ///< slowest worker's
  double single_us = 0;             ///< step of one worker while the others rest
  double compute_us = 0;            ///< step of all workers at once, without communication
  /// This worker's largest resident memory in those steps, bytes; nullopt where the kernel does not
  /// tell.
  std::optional<double> peak_bytes;
};

/// Steps without communication: all workers at once, then the first one alone. The slowest worker's
/// figures count, so that every rank makes the same plan. Ranks: all.
/// @param worker, learner nullptr on the first `servers` ranks, which compute nothing
ModelProfile profile_model(Communicator& comm, int servers, TrainingWorker* worker,
                           const Learner* learner);

}  // namespace dynamiccl
