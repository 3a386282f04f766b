#pragma once

#include <string>

#include "core/training.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// Why these ranks cannot train the cell; empty when they can.
std::string why_not_trainable(Communicator& comm, const RunConfig& config,
                              const TrainingSpec& spec);

}  // namespace dynamiccl
