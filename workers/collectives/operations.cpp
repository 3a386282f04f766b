#include "workers/collectives/operations.hpp"

#include <array>

#include "workers/aggregation/aggregation_link.hpp"
#include "workers/collectives/parameter_server.hpp"
#include "workers/collectives/ring.hpp"
#include "workers/collectives/two_level.hpp"

namespace dynamiccl {
namespace {

std::size_t no_scratch(const Layout& /*layout*/, const Place& /*place*/, DataType /*type*/,
                       const Pipelining& /*pipelining*/) {
  return 0;
}

void run_broadcast(const Call& c, PhaseTimes& /*times*/) {
  c.comm.broadcast(c.out, c.layout.count, c.type, c.layout.root);
}
void run_reduce(const Call& c, PhaseTimes& /*times*/) {
  c.comm.reduce(c.in, c.out, c.layout.count, c.type, c.layout.root);
}
void run_allreduce(const Call& c, PhaseTimes& /*times*/) {
  c.comm.allreduce(c.in, c.out, c.layout.count, c.type);
}
void run_aggregated_allreduce(const Call& c, PhaseTimes& /*times*/) {
  DYN_ASSERT(c.aggregation != nullptr, "a cell that uses an aggregator has met it");
  c.aggregation->allreduce(c.in, c.out, c.layout.count, c.type);
}
void run_allgather(const Call& c, PhaseTimes& /*times*/) {
  c.comm.allgather(c.in, c.out, c.layout.count, c.type);
}
void run_reduce_scatter(const Call& c, PhaseTimes& /*times*/) {
  c.comm.reduce_scatter(c.in, c.out, c.layout.count, c.type);
}
void run_gather(const Call& c, PhaseTimes& /*times*/) {
  c.comm.gather(c.in, c.out, c.layout.count, c.type, c.layout.root);
}
void run_alltoall(const Call& c, PhaseTimes& /*times*/) {
  c.comm.alltoall(c.in, c.out, c.layout.count, c.type);
}
void run_alltoallv(const Call& c, PhaseTimes& /*times*/) {
  c.comm.alltoallv(c.in, c.out, c.layout.pairs, c.type);
}
void run_allgatherv(const Call& c, PhaseTimes& /*times*/) {
  c.comm.allgatherv(c.in, c.out, c.layout.pairs, c.type);
}
void run_scatter(const Call& c, PhaseTimes& /*times*/) {
  c.comm.scatter(c.in, c.out, c.layout.count, c.type, c.layout.root);
}
void run_barrier(const Call& c, PhaseTimes& /*times*/) { c.comm.library_barrier(); }
void run_neighbour_exchange(const Call& c, PhaseTimes& /*times*/) {
  const int size = c.comm.size();
  const int rank = c.comm.rank();
  c.comm.send_receive(c.in, (rank + 1) % size, c.out, (rank + size - 1) % size,
                      c.layout.count * element_bytes(c.type));
}

constexpr std::array kRows{
    OperationRow{Collective::broadcast, "", TimeKind::collective, run_broadcast, no_scratch},
    OperationRow{Collective::reduce, "", TimeKind::collective, run_reduce, no_scratch},
    OperationRow{Collective::allreduce, "", TimeKind::collective, run_allreduce, no_scratch},
    OperationRow{Collective::allgather, "", TimeKind::collective, run_allgather, no_scratch},
    OperationRow{Collective::reduce_scatter, "", TimeKind::collective, run_reduce_scatter,
                 no_scratch},
    OperationRow{Collective::gather, "", TimeKind::collective, run_gather, no_scratch},
    OperationRow{Collective::alltoall, "", TimeKind::collective, run_alltoall, no_scratch},
    OperationRow{Collective::alltoallv, "", TimeKind::collective, run_alltoallv, no_scratch},
    OperationRow{Collective::allgatherv, "", TimeKind::collective, run_allgatherv, no_scratch},
    OperationRow{Collective::scatter, "", TimeKind::collective, run_scatter, no_scratch},
    OperationRow{Collective::barrier, "", TimeKind::collective, run_barrier, no_scratch},
    OperationRow{Collective::sendrecv, "send_recv", TimeKind::point_to_point,
                 run_neighbour_exchange, no_scratch},
    OperationRow{Collective::push, "send_recv", TimeKind::point_to_point, run_push, push_scratch,
                 OperationMemory::host},
    OperationRow{Collective::pull, "send_recv", TimeKind::point_to_point, run_pull, no_scratch,
                 OperationMemory::host},
    OperationRow{Collective::push_pull, "send_recv", TimeKind::point_to_point, run_push_pull,
                 push_scratch, OperationMemory::host},
    OperationRow{Collective::push, "reduce", TimeKind::collective, run_gpu_push, gpu_push_scratch,
                 OperationMemory::gpu},
    OperationRow{Collective::pull, "broadcast", TimeKind::collective, run_gpu_pull, no_scratch,
                 OperationMemory::gpu},
    OperationRow{Collective::push_pull, "reduce_broadcast", TimeKind::collective, run_gpu_push_pull,
                 gpu_push_scratch, OperationMemory::gpu},
    OperationRow{Collective::allreduce, "own_ring", TimeKind::collective, run_ring_allreduce,
                 ring_scratch, OperationMemory::host},
    OperationRow{Collective::allgather, "own_ring", TimeKind::collective, run_ring_allgather,
                 no_scratch, OperationMemory::host},
    OperationRow{Collective::reduce_scatter, "own_ring", TimeKind::collective,
                 run_ring_reduce_scatter, ring_scratch, OperationMemory::host},
    OperationRow{Collective::allreduce, "two_level", TimeKind::collective, run_two_level_allreduce,
                 two_level_scratch, OperationMemory::host},
    OperationRow{Collective::allreduce, "aggregator", TimeKind::collective,
                 run_aggregated_allreduce, no_scratch, OperationMemory::host},
};

bool runs_on(const OperationRow& row, bool on_gpu) {
  return row.memory == OperationMemory::any || (row.memory == OperationMemory::gpu) == on_gpu;
}

}  // namespace

const OperationRow* find_operation(const WorkCell& cell, bool on_gpu) {
  const OperationRow* library = nullptr;
  for (const auto& row : kRows) {
    if (row.collective != cell.collective || !runs_on(row, on_gpu)) continue;
    if (row.own_algorithm == cell.algorithm) return &row;
    // Operations that no library offers are run by ours when the cell leaves the choice open.
    const bool stands_in = library == nullptr && cell.algorithm == "library";
    if (row.own_algorithm.empty() || stands_in) library = &row;
  }
  if (library != nullptr && cell.algorithm == "own_ring") return nullptr;
  return library;
}

std::vector<std::string_view> own_algorithms(Collective collective, bool on_gpu) {
  std::vector<std::string_view> names;
  for (const auto& row : kRows) {
    if (row.collective == collective && !row.own_algorithm.empty() && runs_on(row, on_gpu))
      names.push_back(row.own_algorithm);
  }
  return names;
}

}  // namespace dynamiccl
