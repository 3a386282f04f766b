#pragma once

#include "workers/collectives/operations.hpp"

namespace dynamiccl {

/// Parameter server over send/recv. The server is Layout::root; all other ranks are workers.
/// A push arrives in segments of Pipelining::segment_bytes, summed while the next ones are on their
/// way, so the server needs two segments per worker beside its tensor.
void run_push(const Call& call, PhaseTimes& times);
void run_pull(const Call& call, PhaseTimes& times);
void run_push_pull(const Call& call, PhaseTimes& times);

/// Bytes that the server needs beside the buffers.
std::size_t push_scratch(const Layout& layout, const Place& place, DataType type,
                         const Pipelining& pipelining);

}  // namespace dynamiccl
