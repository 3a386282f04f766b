#pragma once

#include "workers/communicator.hpp"
#include "workers/train/schedule/predict.hpp"

namespace dynamiccl {

/// Times messages of growing size along the method's own path, up to all gradients, with idle
/// processors. Ranks: all; the slowest rank's figures, the same on every one.
LinkCost measure_link(Communicator& comm, const TrainingSpec& spec, int servers,
                      const std::vector<std::size_t>& counts);

}  // namespace dynamiccl
