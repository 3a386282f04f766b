#include "workers/collectives/gpu_server.hpp"

namespace dynamiccl {

void run_gpu_push(const Call& call, PhaseTimes& /*times*/) {
  const bool server = call.comm.rank() == call.layout.root;
  call.comm.reduce(server ? call.scratch : call.in, server ? call.out : nullptr, call.layout.count,
                   call.type, call.layout.root);
}

void run_gpu_pull(const Call& call, PhaseTimes& /*times*/) {
  const bool server = call.comm.rank() == call.layout.root;
  // The root's buffer is only read.
  call.comm.broadcast(server ? const_cast<std::byte*>(call.in) : call.out, call.layout.count,
                      call.type, call.layout.root);
}

void run_gpu_push_pull(const Call& call, PhaseTimes& times) {
  run_gpu_push(call, times);
  call.comm.broadcast(call.out, call.layout.count, call.type, call.layout.root);
}

std::size_t gpu_push_scratch(const Layout& layout, const Place& place, DataType type,
                             const Pipelining& /*pipelining*/) {
  return place.rank == layout.root ? layout.count * element_bytes(type) : 0;
}

}  // namespace dynamiccl
