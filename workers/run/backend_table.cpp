#include "workers/run/backend_table.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace dynamiccl {

const std::vector<BackendRow>& backend_table() {
  static const std::vector<BackendRow> rows{
#ifdef DYNAMICCL_WITH_OPENMPI
      {Backend::openmpi, connect_mpi},
#endif
#ifdef DYNAMICCL_WITH_MPICH
      {Backend::mpich, connect_mpi},
#endif
#ifdef DYNAMICCL_WITH_GLOO
      {Backend::gloo, connect_gloo},
#endif
#ifdef DYNAMICCL_WITH_NCCL
      {Backend::nccl, connect_nccl},
#endif
#ifdef DYNAMICCL_WITH_CUDA_AWARE_MPI
      {Backend::cuda_aware_mpi, connect_cuda_aware_mpi},
#endif
  };
  return rows;
}

std::unique_ptr<Communicator> connect_host([[maybe_unused]] const RunConfig& config) {
#if defined(DYNAMICCL_WITH_OPENMPI) || defined(DYNAMICCL_WITH_MPICH)
  return connect_mpi(config);
#elif defined(DYNAMICCL_WITH_GLOO)
  return connect_gloo(config);
#else
  throw Error(ErrorKind::bug, "no library of this worker joins ranks over host memory");
#endif
}

int rank_from_environment(int ranks) {
  const char* text = std::getenv("DYNAMICCL_RANK");
  const std::string_view value = text == nullptr ? "" : text;
  int rank = -1;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), rank);
  if (value.empty() || error != std::errc() || end != value.data() + value.size() || rank < 0 ||
      rank >= ranks) {
    throw Error(ErrorKind::input,
                fmt::format("environment variable DYNAMICCL_RANK is \"{}\", but this backend needs "
                            "it to be this process's rank, 0 to {}; start one process per rank "
                            "with it set",
                            value, ranks - 1));
  }
  return rank;
}

}  // namespace dynamiccl
