#pragma once

#include "workers/collectives/call.hpp"

namespace dynamiccl {

/// Parameter server over send/recv. The server is Layout::root; all other ranks are workers.
/// A push arrives in segments of Pipelining::segment_bytes, summed while the next ones are on their
/// way, so the server needs two segments per worker besides its tensor.
void run_push(const Call& call, PhaseTimes& times);
void run_pull(const Call& call, PhaseTimes& times);
void run_push_pull(const Call& call, PhaseTimes& times);

/// Bytes that the server needs besides the buffers.
std::size_t push_scratch(const Layout& layout, const Place& place, DataType type,
                         const Pipelining& pipelining);

/// Parameter server on libraries that work on GPU memory, by their collectives: a push is a
/// reduction onto the server, to which the server itself adds zeros, a pull is a broadcast from it.
/// The scratch of a push must hold zeros and is only read.
void run_gpu_push(const Call& call, PhaseTimes& times);
void run_gpu_pull(const Call& call, PhaseTimes& times);
void run_gpu_push_pull(const Call& call, PhaseTimes& times);

/// Bytes of zeros that the server needs.
std::size_t gpu_push_scratch(const Layout& layout, const Place& place, DataType type,
                             const Pipelining& pipelining);

}  // namespace dynamiccl
