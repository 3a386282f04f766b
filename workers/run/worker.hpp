#pragma once

#include "core/wire/run_config.hpp"
#include "workers/communicator.hpp"
#include "workers/run/training.hpp"

namespace dynamiccl {

/// Does the whole work of one rank once it is connected: checks the world, measures every cell,
/// writes rank<r>.jsonl. Ranks: all.
/// @param started_unix_s wall clock at the start of main
/// @param make_training runs training cells; nullptr: they are unsupported here
/// @throws Error; what went wrong has then been written as this rank's last record where possible
void run_worker(Communicator& comm, const RunConfig& config, double started_unix_s,
                MakeTraining make_training = nullptr);

}  // namespace dynamiccl
