#include "workers/train/synchronisation/update_log.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "workers/train/sgd.hpp"

namespace dynamiccl {
namespace {

using Kind = UpdateEvent::Kind;

/// The worker's steps so far, of each.
using Clocks = std::vector<std::uint32_t>;

std::uint32_t slowest(const Clocks& clocks) {
  return *std::min_element(clocks.begin(), clocks.end());
}

}  // namespace

std::string broken_rule(const TrainingSpec& spec, int workers, const UpdateLog& log) {
  Clocks clocks(static_cast<std::size_t>(workers), 0);
  Clocks in_phase(clocks);
  int used = 0;  // of this update
  std::uint32_t turn = 0;
  const int wanted = workers - spec.backups;
  for (const UpdateEvent& event : log) {
    std::uint32_t& clock = clocks.at(event.worker);
    if (event.clock != clock)
      return fmt::format("worker {}'s step {} came where its step {} was due", event.worker,
                         event.clock, clock);
    if (event.kind == Kind::applied || event.kind == Kind::dropped) {
      ++clock;
      ++in_phase[event.worker];
      if (event.kind == Kind::applied) ++used;
      if (spec.synchronisation == Synchronisation::staggered && event.worker != turn)
        return fmt::format("worker {}'s gradient was taken in worker {}'s turn", event.worker,
                           turn);
      turn = (turn + 1) % static_cast<std::uint32_t>(workers);
      if (spec.synchronisation == Synchronisation::backup && used > wanted)
        return fmt::format("an update took the gradients of more than {} workers", wanted);
      continue;
    }
    if (spec.synchronisation == Synchronisation::backup && used == wanted) used = 0;
    if (event.kind == Kind::ended) {
      in_phase[event.worker] = 0;
      continue;
    }
    const std::uint32_t ahead = in_phase[event.worker] - slowest(in_phase);
    if (spec.synchronisation == Synchronisation::ssp &&
        ahead > static_cast<std::uint32_t>(spec.staleness))
      return fmt::format("worker {} was let go on {} steps ahead of the slowest; the bound is {}",
                         event.worker, ahead, spec.staleness);
  }
  return "";
}

std::vector<float> replay_updates(const TrainingSpec& spec, TrainingWorker& worker,
                                  const UpdateLog& log) {
  const std::size_t count = worker.gradient_bytes() / sizeof(float);
  const Sgd sgd{static_cast<float>(spec.learning_rate), static_cast<float>(spec.momentum)};
  const float* start = worker.weights_in_order();
  std::vector<float> weights(start, start + count);
  std::vector<float> velocity(count, 0.0F);
  std::vector<float> sum(count, 0.0F);
  std::vector<std::vector<float>> given(static_cast<std::size_t>(worker.workers()), weights);
  const bool together = spec.synchronisation == Synchronisation::backup;
  const int wanted = together ? worker.workers() - spec.backups : 1;
  const auto scale = static_cast<float>(1.0 / (together ? wanted : worker.workers()));
  int used = 0;
  for (const UpdateEvent& event : log) {
    if (event.kind == Kind::answered || event.kind == Kind::ended) given[event.worker] = weights;
    if (event.kind != Kind::applied) continue;
    worker.take_weights(given[event.worker].data(), 1);
    worker.compute_for(static_cast<int>(event.worker), event.clock);
    const float* gradient = worker.gradients();
    for (std::size_t i = 0; i < count; ++i) sum[i] = used == 0 ? gradient[i] : sum[i] + gradient[i];
    if (++used < wanted) continue;
    sgd_update(sgd, weights.data(), velocity.data(), sum.data(), scale, count);
    used = 0;
  }
  return weights;
}

Staleness staleness_of(int workers, const UpdateLog& log) {
  Staleness found;
  Clocks clocks(static_cast<std::size_t>(workers), 0);
  std::vector<int> given(static_cast<std::size_t>(workers), 0);
  int applied = 0;
  double sum = 0;
  for (const UpdateEvent& event : log) {
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
