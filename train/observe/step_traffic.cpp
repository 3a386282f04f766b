#include "train/observe/step_traffic.hpp"

namespace dynamiccl {
namespace {

/// No all-reduce of all ranks together needs fewer bytes than a ring's (each rank's values leave it
/// at least once, each sum comes to all): where fewer were counted, some went another way, such as
/// by copies through shared memory or NVLink. The rest is for small messages and CMA.
constexpr double kAllCounted = 0.9;

}  // namespace

StepTraffic::StepTraffic(Communicator& comm, const ExchangePlan& plan) : comm_(comm), plan_(plan) {
  // What others still had to send before is behind us.
  barrier(comm_);
  watch_.lap();
}

void StepTraffic::leave_out(const std::function<void()>& work) {
  barrier(comm_);
  add_lap();
  work();
  barrier(comm_);
  watch_.lap();
}

void StepTraffic::add_lap() { moved_ += watch_.lap(); }

void StepTraffic::conclude(TrainingFigures& figures, double samples, int steps,
                           double payload_bytes) {
  barrier(comm_);
  add_lap();
  if (!moved_.network.empty())
    figures.details["network"] = {{"steps", steps}, {"interfaces", to_json(moved_.network)}};
  const auto bytes = static_cast<double>(moved_.tcp_bytes + moved_.cma_bytes);
  // Together: by CMA one of two ranks moves what both exchange.
  const auto all = sum_over_ranks(comm_, {bytes, payload_bytes});
  const bool counted = all[0] >= kAllCounted * all[1];
  if (counted) figures.counted_bytes = bytes / steps;
  if (!counted && !counts_payload(plan_, comm_.queue() != nullptr)) return;
  const double volume = static_cast<double>(plan_.elements()) * sizeof(float);
  // Up and down through a server are counted both, as in the formula.
  const double ways = plan_.first_worker() > 0 ? 2 : 1;
  // Of all samples together: rounds may differ in how many they have.
  figures.c2c_measured =
      ways * (counted ? bytes : payload_bytes) / volume / (samples * figures.intensity);
}

bool counts_payload(const ExchangePlan& plan, bool queued) {
  return plan.servers > 0 || plan.packing != Packing::none ||
         (method_row(plan.method).split && !queued);
}

}  // namespace dynamiccl
