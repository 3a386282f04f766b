#include "workers/communicator.hpp"

#include "core/vocabulary/error.hpp"
#include "workers/device/device.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {

void Communicator::send_receive(const void* send, int to, void* receive, int from,
                                std::size_t bytes) {
  exchange(*this, send, bytes, to, receive, bytes, from, kNeighbourTag);
}

void Communicator::enter_thread() {
  if (Device* own = device()) own->enter_thread();
}

void Communicator::synchronise() { barrier(*this); }

void broadcast_host(Communicator& comm, void* data, std::size_t bytes, int root) {
  DYN_ASSERT(bytes % 4 == 0, "whole words are broadcast");
  if (!comm.works_on_gpu()) return comm.broadcast(data, bytes / 4, DataType::int32, root);
  if (comm.rank() != root) return comm.wait(comm.irecv(data, bytes, root, kControlTag));
  for (int rank = 0; rank < comm.size(); ++rank)
    if (rank != root) comm.wait(comm.isend(data, bytes, rank, kControlTag));
}

}  // namespace dynamiccl
