#include "train/synchronise/update_policy.hpp"

#include "core/vocabulary/error.hpp"

namespace dynamiccl {
namespace {

constexpr UpdatePolicy kPolicies[] = {
    // What a server does before or after a switch: all of a step, as an all-reduce would.
    {.synchronisation = Synchronisation::bsp,
     .wanted = [](const TrainingSpec&, int workers) { return workers; },
     .drops = false},
    {.synchronisation = Synchronisation::backup,
     .wanted = [](const TrainingSpec& spec, int workers) { return workers - spec.backups; }},
    {.synchronisation = Synchronisation::asp},
    {.synchronisation = Synchronisation::staggered, .in_turns = true},
    {.synchronisation = Synchronisation::ssp, .bounded = true}};

}  // namespace

bool UpdatePolicy::may_go_on(const TrainingSpec& spec, const WaitingWorker& waiting) const {
  if (adds_up()) return waiting.updated;  // its part of this update is in, or it was late
  return !bounded || waiting.ahead <= static_cast<std::uint32_t>(spec.staleness);
}

const UpdatePolicy& update_policy(Synchronisation synchronisation) {
  for (const UpdatePolicy& policy : kPolicies)
    if (policy.synchronisation == synchronisation) return policy;
  DYN_ASSERT(false, "servers that answer each worker by itself have a policy");
}

}  // namespace dynamiccl
