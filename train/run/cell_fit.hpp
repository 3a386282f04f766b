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

/// Buffers as large as all gradients that a worker may hold besides them: one, and what codec and
/// synchronisation keep; where averages have a momentum that and the weights that it goes from;
/// the weights from which a way is encoded, and with neighbours two replicas and what one sent.
/// Where values decide how many are sent, all may be, with their places and how many of each
/// gradient there are.
std::size_t copies_of(const TrainingSpec& spec, const CodecSettings& codec);

}  // namespace dynamiccl
