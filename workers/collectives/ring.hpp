#pragma once

#include "workers/collectives/call.hpp"
#include "workers/messages.hpp"

namespace dynamiccl {

/// Some of a vector's elements.
struct Cut {
  std::size_t begin;
  std::size_t count;
};
/// Part `index` of `total` elements cut into `parts` that differ by at most one.
Cut cut_of(std::size_t total, std::size_t parts, std::size_t index);

/// What an all-reduce among any ranks needs.
struct RingSum {
  const std::byte* in;
  std::byte* out;      ///< may be `in`
  std::byte* scratch;  ///< ring_allreduce_scratch()
  std::size_t count;
  DataType type;
  Pipelining pipelining;
};
void ring_allreduce(Messages& ranks, const RingSum& sum);
std::size_t ring_allreduce_scratch(std::size_t count, int ranks, DataType type,
                                   const Pipelining& pipelining);

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
