#pragma once

#include <memory>
#include <vector>

#include "core/wire/run_config.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// Joins all ranks; blocks until they are connected.
/// @throws Error(environment) when that fails or takes longer than config.connect_timeout
using Connect = std::unique_ptr<Communicator> (*)(const RunConfig& config);

struct BackendRow {
  Backend backend;
  Connect connect;
};

/// The backends linked into this executable (two MPIs cannot share a process, so each worker
/// carries its own selection).
const std::vector<BackendRow>& backend_table();

/// One function per file in backends/; the table names those that were compiled in.
std::unique_ptr<Communicator> connect_mpi(const RunConfig& config);
std::unique_ptr<Communicator> connect_gloo(const RunConfig& config);
std::unique_ptr<Communicator> connect_nccl(const RunConfig& config);
std::unique_ptr<Communicator> connect_cuda_aware_mpi(const RunConfig& config);

/// By this executable's library over host memory: MPI where it has one, else Gloo.
std::unique_ptr<Communicator> connect_host(const RunConfig& config);

/// Rank given by whoever started this process, for backends without a launcher.
/// @throws Error(input) when the environment variable DYNAMICCL_RANK is missing or out of range
int rank_from_environment(int ranks);

}  // namespace dynamiccl
