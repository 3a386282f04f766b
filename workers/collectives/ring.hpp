#pragma once

#include "workers/collectives/call.hpp"

namespace dynamiccl {

/// Bandwidth-optimal ring algorithms over send/recv: 2(n-1) steps for allreduce, n-1 for
/// allgather and reduce_scatter, each rank sending to its right neighbour. Every step's chunk is
/// cut into segments of Pipelining::segment_bytes, so that sending, receiving and summing overlap.
/// Patarasuk, Yuan, doi 10.1016/j.jpdc.2008.09.002.
void run_ring_allreduce(const Call& call, PhaseTimes& times);
void run_ring_allgather(const Call& call, PhaseTimes& times);
void run_ring_reduce_scatter(const Call& call, PhaseTimes& times);

/// Bytes that allreduce and reduce_scatter need besides the buffers.
std::size_t ring_scratch(const Layout& layout, const Place& place, DataType type,
                         const Pipelining& pipelining);

}  // namespace dynamiccl
