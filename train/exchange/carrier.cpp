#include "train/exchange/carrier.hpp"

#include <fmt/format.h>

#include "train/exchange/staged.hpp"

namespace dynamiccl {

GradientCarrier carrier_of(Communicator& comm, const ExchangePlan& plan) {
  if (plan.server_sums == ServerSums::gpu)
    return {"sent and received by the library, summed by the servers' GPUs", comm.library()};
  if (plan.server_sums == ServerSums::chief) {
    const std::string library = comm.carrier();
    return {
        fmt::format("summed by the library at a chief, host memory over {} to the server", library),
        fmt::format("{}, chief to server over {}", comm.library(), library)};
  }
  if (plan.path.aggregation != nullptr) return {"host memory, summed by an aggregator", "UDP"};
  // DeAR's halves are the library's own where it queues its work on the GPU.
  const bool own_halves = method_row(plan.method).split && comm.queue() != nullptr;
  if (comm.works_on_gpu() && goes_by_host(plan) && !own_halves) {
    const std::string library = comm.carrier();
    return {fmt::format("host memory over {}{}{}", library, plan.path.own_ring ? ", own ring" : "",
                        plan.servers > 0 ? ", summed by the servers' CPUs" : ""),
            library};
  }
  return {plan.path.lanes > 1 ? fmt::format("{} communicators", plan.path.lanes) : "direct",
          comm.library()};
}

}  // namespace dynamiccl
