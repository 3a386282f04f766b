#include "train/synchronise/update_log.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "train/synchronise/update_policy.hpp"

namespace dynamiccl {
namespace {

using Kind = UpdateEvent::Kind;

/// The worker's steps so far, of each.
using Clocks = std::vector<std::uint32_t>;

std::uint32_t slowest(const Clocks& clocks) {
  return *std::min_element(clocks.begin(), clocks.end());
}

}  // namespace

bool answers_singly(const TrainingSpec& spec) {
  return is_asynchronous(spec.synchronisation) ||
         (spec.switch_to && method_row(spec.method).sums == SumPlace::server);
}

std::string broken_rule(const TrainingSpec& whole, int workers, const UpdateLog& log) {
  TrainingSpec spec = leg_of(whole, false);
  const UpdatePolicy* policy = &update_policy(spec.synchronisation);
  Clocks clocks(static_cast<std::size_t>(workers), 0);
  Clocks in_phase(clocks);
  int used = 0;  // of this update
  std::uint32_t turn = 0;
  int wanted = policy->of_update(spec, workers);
  for (const UpdateEvent& event : log) {
    if (event.kind == Kind::switched) {
      spec = leg_of(whole, true);
      policy = &update_policy(spec.synchronisation);
      wanted = policy->of_update(spec, workers);
      used = 0;
      turn = 0;
      continue;
    }
    std::uint32_t& clock = clocks.at(event.worker);
    if (event.clock != clock)
      return fmt::format("worker {}'s step {} came where its step {} was due", event.worker,
                         event.clock, clock);
    if (event.kind == Kind::applied || event.kind == Kind::dropped) {
      ++clock;
      ++in_phase[event.worker];
      if (event.kind == Kind::applied) ++used;
      if (policy->in_turns && event.worker != turn)
        return fmt::format("worker {}'s gradient was taken in worker {}'s turn", event.worker,
                           turn);
      turn = (turn + 1) % static_cast<std::uint32_t>(workers);
      if (!policy->drops && event.kind == Kind::dropped)
        return fmt::format("worker {}'s gradient was dropped", event.worker);
      if (policy->adds_up() && used > wanted)
        return fmt::format("an update took the gradients of more than {} workers", wanted);
      continue;
    }
    if (!policy->adds_up() || used == wanted) used = 0;
    if (event.kind == Kind::ended) {
      in_phase[event.worker] = 0;
      continue;
    }
    const std::uint32_t ahead = in_phase[event.worker] - slowest(in_phase);
    if (policy->bounded && ahead > static_cast<std::uint32_t>(spec.staleness))
      return fmt::format("worker {} was let go on {} steps ahead of the slowest; the bound is {}",
                         event.worker, ahead, spec.staleness);
  }
  return "";
}

Staleness staleness_of(int workers, const UpdateLog& log) {
  Staleness found;
  Clocks clocks(static_cast<std::size_t>(workers), 0);
  std::vector<int> given(static_cast<std::size_t>(workers), 0);
  int applied = 0;
  double sum = 0;
  for (const UpdateEvent& event : log) {
    if (event.kind == Kind::switched) continue;
    if (event.kind == Kind::answered) {
      found.furthest_ahead = std::max(found.furthest_ahead,
                                      static_cast<int>(clocks.at(event.worker) - slowest(clocks)));
    }
    if (event.kind == Kind::ended) clocks.at(event.worker) = 0;
    if (event.kind == Kind::answered || event.kind == Kind::ended) {
      given.at(event.worker) = applied;
      continue;
    }
    ++clocks.at(event.worker);
    if (event.kind == Kind::dropped) {
      ++found.dropped;
      continue;
    }
    const int stale = applied - given[event.worker];
    sum += stale;
    found.most = std::max(found.most, stale);
    ++applied;
  }
  found.mean = applied > 0 ? sum / applied : 0;
  return found;
}

}  // namespace dynamiccl
