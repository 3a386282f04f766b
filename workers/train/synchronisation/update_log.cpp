#include "workers/train/synchronisation/update_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "workers/train/compression/codec_replay.hpp"
#include "workers/train/exchange/ring_halves.hpp"
#include "workers/train/sgd.hpp"
#include "workers/train/synchronisation/worker_group.hpp"

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

bool adds_up(const TrainingSpec& spec) {
  return spec.synchronisation == Synchronisation::bsp ||
         spec.synchronisation == Synchronisation::backup;
}

int gradients_of_update(const TrainingSpec& spec, int workers) {
  if (!adds_up(spec)) return 1;
  return spec.synchronisation == Synchronisation::bsp ? workers : workers - spec.backups;
}

std::string broken_rule(const TrainingSpec& whole, int workers, const UpdateLog& log) {
  TrainingSpec spec = leg_of(whole, false);
  Clocks clocks(static_cast<std::size_t>(workers), 0);
  Clocks in_phase(clocks);
  int used = 0;  // of this update
  std::uint32_t turn = 0;
  int wanted = gradients_of_update(spec, workers);
  for (const UpdateEvent& event : log) {
    if (event.kind == Kind::switched) {
      spec = leg_of(whole, true);
      wanted = gradients_of_update(spec, workers);
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
      if (spec.synchronisation == Synchronisation::staggered && event.worker != turn)
        return fmt::format("worker {}'s gradient was taken in worker {}'s turn", event.worker,
                           turn);
      turn = (turn + 1) % static_cast<std::uint32_t>(workers);
      if (spec.synchronisation == Synchronisation::bsp && event.kind == Kind::dropped)
        return fmt::format("worker {}'s gradient was dropped", event.worker);
      if (adds_up(spec) && used > wanted)
        return fmt::format("an update took the gradients of more than {} workers", wanted);
      continue;
    }
    if (!adds_up(spec) || used == wanted) used = 0;
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

namespace {

/// What the ring of a group makes of its members' gradients, in the order in which it adds.
void add_around(const ExchangePlan& plan, const std::vector<std::vector<float>>& gradients,
                std::vector<float>& sum) {
  const std::size_t members = gradients.size();
  for (const Piece& piece : plan.pieces) {
    for (std::size_t part = 0; part < members; ++part) {
      const auto first = piece.offset + RingHalves::part_begin(piece.count, members, part);
      const auto end = piece.offset + RingHalves::part_begin(piece.count, members, part + 1);
      for (std::size_t i = first; i < end; ++i) {
        sum[i] = gradients[part][i];
        for (std::size_t more = 1; more < members; ++more)
          sum[i] += gradients[(part + more) % members][i];
      }
    }
  }
}

/// The sum of a group's gradients at these weights; without groups one worker's gradient.
/// @param within codecs of the groups' members, which are added in rank order; nullptr where they
///               send plain values
void group_gradient(const ExchangePlan& plan, const TrainingSpec& spec, TrainingWorker& worker,
                    const UpdateEvent& event, const std::vector<float>& weights,
                    ReplayedSum* within, std::vector<float>& sum) {
  std::vector<std::vector<float>> gradients;
  for (int member = 0; member < spec.group_size; ++member) {
    const int number = static_cast<int>(event.worker) * spec.group_size + member;
    worker.take_host_weights(weights.data());
    worker.compute_for(number, event.clock);
    gradients.push_back(worker.host_gradients());
    if (within != nullptr) within->pass(number, gradients.back());
  }
  if (within == nullptr) return add_around(plan, gradients, sum);
  sum = std::move(gradients.front());
  for (std::size_t member = 1; member < gradients.size(); ++member)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradients[member][i];
}

}  // namespace

std::vector<float> replay_updates(const ExchangePlan& plan, const TrainingSpec& whole,
                                  TrainingWorker& worker, const UpdateLog& log) {
  TrainingSpec spec = leg_of(whole, false);
  std::optional<ReplayedSum> coded;
  if (plan.codec.codec != Codec::none) coded.emplace(plan, groups_of(spec, worker.workers()));
  std::optional<ReplayedSum> within;
  if (spec.group_compression != Codec::none)
    within.emplace(group_plan(plan, spec), worker.workers());
  const std::size_t count = worker.gradient_bytes() / sizeof(float);
  const Sgd sgd{static_cast<float>(spec.learning_rate),
                static_cast<float>(optimizer_momentum(spec))};
  std::vector<float> weights = worker.host_weights();
  std::vector<float> velocity(count, 0.0F);
  std::vector<float> sum(count, 0.0F);
  std::vector<float> gradient(count, 0.0F);
  const int groups = groups_of(spec, worker.workers());
  std::vector<std::vector<float>> given(static_cast<std::size_t>(groups), weights);
  int wanted = gradients_of_update(spec, groups);
  int used = 0;
  for (const UpdateEvent& event : log) {
    if (event.kind == Kind::switched) {
      spec = leg_of(whole, true);
      wanted = gradients_of_update(spec, groups);
    }
    if (event.kind == Kind::answered || event.kind == Kind::ended) given[event.worker] = weights;
    if (event.kind != Kind::applied && !((coded || within) && event.kind == Kind::dropped))
      continue;
    group_gradient(plan, spec, worker, event, given[event.worker], within ? &*within : nullptr,
                   gradient);
    if (coded) coded->pass(static_cast<int>(event.worker), gradient);
    if (event.kind == Kind::dropped) continue;  // its codec thinks that it was sent
    for (std::size_t i = 0; i < count; ++i) sum[i] = used == 0 ? gradient[i] : sum[i] + gradient[i];
    if (++used < wanted) continue;
    const auto scale = static_cast<float>(1.0 / (adds_up(spec) ? wanted : worker.workers()));
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
