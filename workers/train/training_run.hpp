#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "workers/train/worker_step.hpp"
#include "workers/training.hpp"

namespace dynamiccl {

std::unique_ptr<TrainingRunner> make_training_run(Communicator& comm, const RunConfig& config,
                                                  double epoch_us);

/// What is known of a model on these ranks before any method runs; the same on every rank.
struct ModelProfile {
  std::vector<int> order;           ///< parameters as the first worker's backward pass ends them
  std::vector<std::size_t> counts;  ///< elements, in that order
  StepProfile step;                 ///< slowest worker's, medians
  double single_us = 0;             ///< step of one worker while the others rest
  double compute_us = 0;            ///< step of all workers at once, without communication
};

}  // namespace dynamiccl
