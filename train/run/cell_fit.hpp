#pragma once

#include <optional>
#include <string>

#include "train/spec/training.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// Why these ranks cannot train the cell; empty when they can.
std::string why_not_trainable(Communicator& comm, const RunConfig& config,
                              const TrainingSpec& spec);

/// This rank's GPU as communicators choose it; nullopt where training is on host memory.
std::optional<int> gpu_of(Communicator& comm, const RunConfig& config);

}  // namespace dynamiccl
