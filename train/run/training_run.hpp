#pragma once

#include <memory>

#include "workers/run/training.hpp"

namespace dynamiccl {

std::unique_ptr<TrainingRunner> make_training_run(Communicator& comm, const RunConfig& config,
                                                  double epoch_us);

}  // namespace dynamiccl
