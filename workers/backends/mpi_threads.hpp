#pragma once

#include <mpi.h>

#include <string>

#include "core/wire/run_config.hpp"

namespace dynamiccl {

/// One thread at a time, though not always the same one, where training communicates from its own.
/// Otherwise what MPI_Init gives: any level above takes locks, which costs Open MPI 4.1 a sixth of
/// a 1 KiB all-reduce.
inline int thread_level_for(const RunConfig& config) {
  for (const auto& cell : config.cells) {
    if (cell.collective == Collective::training) return MPI_THREAD_SERIALIZED;
  }
  return MPI_THREAD_SINGLE;
}

/// In small letters, as records have it.
inline std::string name_of_thread_level(int level) {
  if (level == MPI_THREAD_SINGLE) return "single";
  if (level == MPI_THREAD_FUNNELED) return "funneled";
  return level == MPI_THREAD_SERIALIZED ? "serialized" : "multiple";
}

}  // namespace dynamiccl
