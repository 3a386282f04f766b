#pragma once

#include <functional>
#include <string>
#include <vector>

#include "orchestrator/doctor/job/entry_watch.hpp"
#include "orchestrator/doctor/job/live_job.hpp"

namespace dynamiccl {

/// Bytes that one rank gives to a collective, by the arguments that the call began with; where
/// those count a part (MPI_Reduce_scatter_block, MPI_Alltoall, ncclReduceScatter), of one rank's
/// part.
/// @param call "MPI_Allreduce", "ncclAllReduce"
/// @param library "Open MPI", "MPICH", "NCCL"
/// @param word_at reads eight bytes of the rank's memory; nullopt = it may not
/// @returns nullopt where the call has no one size, is in place and so names none, or its datatype
///          is none of the plain ones
std::optional<std::uint64_t> bytes_of_call(
    const std::string& call, const std::string& library, const SeenEntry& entry,
    const std::function<std::optional<std::uint64_t>(std::uint64_t)>& word_at);

/// Watches which collectives these ranks begin, and of how many bytes, until some rank has begun a
/// hundred, so long at most with all that it takes to begin and to end: those of MPI in which looks
/// have found a rank, and NCCL's. Fills `calls` of each. Blocking.
/// @returns why it sees none, or which not; "" = it does, or there was no call that it could watch
std::string watch_calls(std::vector<LiveRank>& ranks, double seconds);

/// "ranks 0 and 1 began MPI_Allreduce of 32 KiB 24 times in 0.6 s", a line for each kind of call.
std::vector<std::string> lines_of_calls(const std::vector<LiveRank>& ranks);

}  // namespace dynamiccl
