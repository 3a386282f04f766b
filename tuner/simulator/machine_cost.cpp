#include "tuner/simulator/machine_cost.hpp"

#include <algorithm>
#include <cmath>

namespace dynamiccl {

const FlowCost& MachineCost::flows(Hops hops, const Phase& phase, int distance) {
  const auto [found, fresh] =
      known_.try_emplace(Key{hops, phase.group, phase.stride, distance, phase.leaders}, FlowCost{});
  if (!fresh) return found->second;
  load_.clear();
  for (int rank = 0; rank < ranks_; ++rank) {
    if (phase.leaders && rank % phase.stride != 0) continue;
    const int place = rank / phase.stride % phase.group;
    int partner = (place + distance) % phase.group;
    if (hops == Hops::swap) partner = place ^ distance;
    if (hops == Hops::down) partner = place % (2 * distance) == distance ? place - distance : place;
    const int to = rank + (partner - place) * phase.stride;
    if (partner < phase.group && to < ranks_) load_.add(rank, to);
  }
  found->second = load_.cost();
  return found->second;
}

MachineCost::Link MachineCost::link(const FlowCost& cost, double message) const {
  Link link;
  for (std::size_t tier = 0; tier < kLinkTiers; ++tier) {
    if (cost.latencies[tier] == 0 && cost.load[tier] == 0) continue;
    const LinkClass& one = machine_.links[tier].at(message);
    link.latency_us += cost.latencies[tier] * one.latency_us;
    const double us_per_byte = cost.load[tier] / one.bytes_per_us;
    if (us_per_byte <= link.us_per_byte) continue;
    link.us_per_byte = us_per_byte;
    link.tier = static_cast<LinkTier>(tier);
  }
  return link;
}

/// The mean over the members, each of which sends alone.
MachineCost::Link MachineCost::to_root(const Phase& phase, double message) {
  const auto [found, fresh] = ways_to_root_.try_emplace({phase.group, phase.stride}, Ways{});
  Ways& ways = found->second;
  if (fresh)
    for (int place = 1; place < phase.group; ++place) ++ways[load_.add(place * phase.stride, 0)];
  Link mean;
  double slowest = 0;
  for (const auto& [way, members] : ways) {
    FlowCost alone{way, {}};
    for (std::size_t tier = 0; tier < kLinkTiers; ++tier) alone.load[tier] = way[tier] > 0 ? 1 : 0;
    const Link own = link(alone, message);
    const double share = static_cast<double>(members) / (phase.group - 1);
    mean.latency_us += own.latency_us * share;
    mean.us_per_byte += own.us_per_byte * share;
    if (own.us_per_byte * share <= slowest) continue;
    slowest = own.us_per_byte * share;
    mean.tier = own.tier;
  }
  return mean;
}

void MachineCost::count(const Link& link, double rounds, double volume, PredictedTime& time) {
  time.start_up_us += rounds * link.latency_us;
  time.bytes_us += volume * link.us_per_byte;
  bytes_us_[static_cast<std::size_t>(link.tier)] += volume * link.us_per_byte;
}

/// Of patterns whose partner is at another distance in each round.
void MachineCost::add_rounds(const Phase& phase, MessagePattern pattern, const CollectiveWork& work,
                             PredictedTime& time) {
  const int levels = static_cast<int>(std::ceil(std::log2(phase.group)));
  const double rounds = work.rounds / levels;
  const bool pipelined = pattern == MessagePattern::pipelined_tree;
  const Hops hops = pipelined || pattern == MessagePattern::tree ? Hops::down : Hops::swap;
  double shares = 0;
  std::vector<double> share(static_cast<std::size_t>(levels), 1);
  for (int k = 0; k < levels; ++k) {
    if (pattern == MessagePattern::exchange_near)
      share[static_cast<std::size_t>(k)] = std::ldexp(1, -k);
    if (pattern == MessagePattern::exchange_far)
      share[static_cast<std::size_t>(k)] = std::ldexp(1, k);
    shares += share[static_cast<std::size_t>(k)];
  }
  Link slowest;
  for (int k = 0; k < levels; ++k) {
    const double volume = work.volume * share[static_cast<std::size_t>(k)] / shares;
    const double message = pipelined ? work.volume / work.rounds : volume / rounds;
    const Link one = link(flows(hops, phase, 1 << k), message);
    if (one.us_per_byte > slowest.us_per_byte) slowest = one;
    count({one.latency_us, pipelined ? 0 : one.us_per_byte, one.tier}, rounds, volume, time);
  }
  // All levels are at work at once: the slowest one decides.
  if (pipelined) count({0, slowest.us_per_byte, slowest.tier}, 0, work.volume, time);
}

void MachineCost::add(const Phase& phase, const CollectiveShape& cut, PredictedTime& time) {
  if (phase.group <= 1) return;
  CollectiveShape shape = cut;
  shape.collective = phase.collective;
  shape.ranks = phase.group;
  shape.bytes = phase.bytes;
  const CollectiveWork work = phase.collective == Collective::sendrecv
                                  ? CollectiveWork{1, phase.bytes, 0}
                                  : collective_work(phase.algorithm, shape);
  const double message = work.volume / work.rounds;
  const MessagePattern pattern = phase.collective == Collective::sendrecv
                                     ? MessagePattern::neighbours
                                     : pattern_of(phase.algorithm, phase.collective);
  if (pattern == MessagePattern::neighbours)
    count(link(flows(Hops::next, phase, 1), message), work.rounds, work.volume, time);
  else if (pattern == MessagePattern::root)
    count(to_root(phase, message), work.rounds, work.volume, time);
  else
    add_rounds(phase, pattern, work, time);
  if (machine_.sum_bytes_per_us > 0) time.sum_us += work.summed / machine_.sum_bytes_per_us;
}

PredictedTime MachineCost::of(std::string algorithm, const std::vector<Phase>& phases,
                              const CollectiveShape& cut) {
  PredictedTime time;
  time.algorithm = std::move(algorithm);
  time.segment = cut.segment;
  bytes_us_ = {};
  for (const Phase& phase : phases) add(phase, cut, time);
  time.us = time.start_up_us + time.bytes_us + time.sum_us;
  constexpr std::array<std::string_view, kLinkTiers> names{"node", "network", "wide"};
  const auto most = std::max_element(bytes_us_.begin(), bytes_us_.end());
  if (*most > 0) time.limit = names[static_cast<std::size_t>(most - bytes_us_.begin())];
  return time;
}

namespace {

/// Reduce-scatter within groups of each factor's ranks in turn, an all-reduce of the last one's,
/// and the way back. @param across the algorithm of the last
std::vector<Phase> split_by(const std::vector<int>& factors, std::string_view across,
                            double bytes) {
  std::vector<Phase> there;
  std::vector<Phase> back;
  int stride = 1;
  for (std::size_t i = 0; i + 1 < factors.size(); ++i) {
    there.push_back({"ring", Collective::reduce_scatter, factors[i], stride, bytes});
    back.insert(back.begin(), {"ring", Collective::allgather, factors[i], stride, bytes});
    stride *= factors[i];
    bytes /= factors[i];
  }
  there.push_back({across, Collective::allreduce, factors.back(), stride, bytes});
  there.insert(there.end(), back.begin(), back.end());
  return there;
}

/// Ranks below one link of each level of the machine, as factors whose product is all ranks.
std::vector<int> level_factors(const MachineModel& machine) {
  std::vector<int> factors{machine.ranks_per_node};
  switch (machine.shape) {
    case MachineShape::star:
      factors.push_back(machine.nodes);
      break;
    case MachineShape::cross_site:
      factors.insert(factors.end(),
                     {machine.nodes / machine.counts.front(), machine.counts.front()});
      break;
    case MachineShape::bcube:
      factors.insert(factors.end(), static_cast<std::size_t>(machine.counts[1]), machine.counts[0]);
      break;
    case MachineShape::dragonfly:
      factors.insert(factors.end(), machine.counts.rbegin(), machine.counts.rend());
      break;
    default:
      factors.insert(factors.end(), machine.counts.begin(), machine.counts.end());
  }
  std::erase(factors, 1);
  return factors;
}

/// The divisor nearest to the root of n from below; 1 of a prime.
int side_of_grid(int n) {
  int side = static_cast<int>(std::sqrt(static_cast<double>(n)));
  while (n % side != 0) --side;
  return side;
}

void add_composed(MachineCost& cost, const MachineModel& machine, int ranks, double bytes,
                  std::vector<PredictedTime>& times) {
  using enum Collective;
  const std::vector<int> levels = level_factors(machine);
  const int inner = levels.empty() ? 1 : levels.front();
  const int outer = ranks / inner;
  if (levels.size() > 1 && outer > 1 && ranks % inner == 0) {
    for (const char* across : {"ring", "rabenseifner"}) {
      times.push_back(cost.of(std::string("two_level_") + across,
                              {{"binomial", reduce, inner, 1, bytes},
                               {across, allreduce, outer, inner, bytes, true},
                               {"binomial", broadcast, inner, 1, bytes}}));
      times.push_back(
          cost.of(std::string("split_") + across, split_by({inner, outer}, across, bytes)));
    }
  }
  const int side = side_of_grid(ranks);
  if (side > 1) times.push_back(cost.of("torus_2d", split_by({side, ranks / side}, "ring", bytes)));
  if (levels.size() > 2 && ranks == machine.ranks())
    times.push_back(cost.of("blueconnect", split_by(levels, "ring", bytes)));
  // Each worker's values in one piece.
  PredictedTime served =
      cost.of("parameter_server", {{"library", push_pull, ranks, 1, bytes}}, {.segment = bytes});
  served.segment = 0;
  times.push_back(std::move(served));
}

/// The fastest of the segments tried.
PredictedTime best_segment(MachineCost& cost, const Phase& phase) {
  PredictedTime best;
  for (const double segment : {0.0, 8192.0, 65536.0, 1048576.0}) {
    PredictedTime time = cost.of(std::string(phase.algorithm), {phase}, {.segment = segment});
    if (segment == 0 || time.us < best.us) best = std::move(time);
  }
  return best;
}

}  // namespace

PredictedTime predict_groups(const MachineModel& machine, Collective collective, int group,
                             int stride, double bytes, int ranks) {
  MachineCost cost(machine, ranks);
  PredictedTime best;
  auto names = modelled_algorithms(collective);
  if (names.empty()) names.emplace_back("neighbours");
  for (const std::string_view name : names) {
    // One group's messages to its first member go one after another, those of others at once.
    if (group < ranks && collective != Collective::sendrecv &&
        pattern_of(name, collective) == MessagePattern::root)
      continue;
    PredictedTime time = best_segment(cost, {name, collective, group, stride, bytes});
    if (best.algorithm.empty() || time.us < best.us) best = std::move(time);
  }
  return best;
}

std::vector<double> expected_log_us(const std::vector<PredictedTime>& times,
                                    const std::vector<std::string_view>& models) {
  std::vector<double> us(models.size(), 0);
  for (std::size_t i = 1; i < models.size(); ++i)
    for (const PredictedTime& time : times)
      if (time.algorithm == models[i]) us[i] = time.us;
  double least = 0;
  double most = 1;
  for (const double one : us) {
    if (one > 0 && (least == 0 || one < least)) least = one;
    most = std::max(most, one);
  }
  for (double& one : us) one = std::log(one > 0 ? one : 2 * most);
  if (least > 0) us.front() = std::log(least);
  return us;
}

std::vector<PredictedTime> predict_collective(const MachineModel& machine, Collective collective,
                                              int ranks, double bytes) {
  MachineCost cost(machine, ranks);
  std::vector<PredictedTime> times;
  if (ranks < 2) return times;
  for (const std::string_view name : modelled_algorithms(collective))
    times.push_back(best_segment(cost, {name, collective, ranks, 1, bytes}));
  if (collective == Collective::allreduce) add_composed(cost, machine, ranks, bytes, times);
  std::stable_sort(times.begin(), times.end(),
                   [](const PredictedTime& a, const PredictedTime& b) { return a.us < b.us; });
  return times;
}

}  // namespace dynamiccl
