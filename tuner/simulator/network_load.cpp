#include "tuner/simulator/network_load.hpp"

#include <algorithm>
#include <cstdlib>

namespace dynamiccl {
namespace {

// Kinds of links by their numbers; a node's own come first.
constexpr std::size_t kOutOfRank = 0;
constexpr std::size_t kIntoRank = 1;
constexpr std::size_t kFirstOfNetwork = 2;

std::size_t as_size(int value) { return static_cast<std::size_t>(value); }

}  // namespace

std::size_t NetworkLoad::add_kind(std::size_t count, LinkTier tier, double cables) {
  kinds_.push_back({messages_.size(), count, tier, cables});
  messages_.resize(messages_.size() + count);
  return kinds_.size() - 1;
}

void NetworkLoad::add_level(int nodes, LinkTier tier, double cables) {
  const std::size_t count = as_size((machine_.nodes + nodes - 1) / nodes);
  const std::size_t up = add_kind(count, tier, cables);
  levels_.push_back({nodes, up, add_kind(count, tier, cables), tier});
}

void NetworkLoad::make_tree() {
  const bool fat = machine_.shape == MachineShape::fat_tree;
  int below = 1;
  double parents = 1;
  for (std::size_t i = 0; i < (fat ? machine_.counts.size() : 1); ++i) {
    if (fat) parents *= machine_.up[i];
    add_level(below, LinkTier::network, fat ? parents * machine_.cables[i] : 1);
    if (fat) below *= machine_.counts[i];
  }
  if (machine_.shape == MachineShape::cross_site)
    add_level(machine_.nodes / machine_.counts.front(), LinkTier::wide, 1);
}

void NetworkLoad::make_dragonfly() {
  const auto& n = machine_.counts;
  const std::size_t routers = as_size(n[0]) * as_size(n[1]) * as_size(n[2]);
  const auto& cables = machine_.cables;
  add_level(1, LinkTier::network, 1);
  add_kind(routers * as_size(n[2]), LinkTier::network, cables[2]);
  add_kind(routers * as_size(n[1]), LinkTier::network, cables[1]);
  add_kind(as_size(n[0]) * as_size(n[0]), LinkTier::network, cables[0]);
}

NetworkLoad::NetworkLoad(const MachineModel& machine) : machine_(machine) {
  const std::size_t ranks = as_size(machine.ranks());
  const std::size_t nodes = as_size(machine.nodes);
  add_kind(ranks, LinkTier::node, 1);
  add_kind(ranks, LinkTier::node, 1);
  switch (machine.shape) {
    case MachineShape::torus:
      add_kind(nodes * machine.counts.size() * 2, LinkTier::network, 1);
      break;
    case MachineShape::bcube:
      add_kind(nodes * as_size(machine.counts[1]), LinkTier::network, 1);
      add_kind(nodes * as_size(machine.counts[1]), LinkTier::network, 1);
      break;
    case MachineShape::dragonfly:
      make_dragonfly();
      break;
    default:
      make_tree();
  }
}

void NetworkLoad::clear() {
  std::fill(messages_.begin(), messages_.end(), 0U);
  longest_ = {};
  longest_us_ = -1;
}

NetworkLoad::Latencies NetworkLoad::by_tree(int from, int to) {
  Latencies way{};
  for (const Level& level : levels_) {
    const int a = from / level.nodes;
    const int b = to / level.nodes;
    if (a == b) break;
    on(level.up, as_size(a));
    on(level.down, as_size(b));
    way[static_cast<std::size_t>(level.tier)] += 1;
  }
  return way;
}

NetworkLoad::Latencies NetworkLoad::by_torus(int from, int to) {
  Latencies way{};
  int stride = 1;
  int at = from;
  const int dimensions = static_cast<int>(machine_.counts.size());
  for (int d = 0; d < dimensions; ++d) {
    const int length = machine_.counts[as_size(d)];
    const int ahead = ((to / stride) % length - (at / stride) % length + length) % length;
    const bool forwards = 2 * ahead <= length;
    for (int hop = forwards ? ahead : length - ahead; hop > 0; --hop) {
      on(kFirstOfNetwork, as_size((at * dimensions + d) * 2 + (forwards ? 0 : 1)));
      const int place = (at / stride) % length;
      at += ((place + (forwards ? 1 : length - 1)) % length - place) * stride;
      way[1] += 1;
    }
    stride *= length;
  }
  return way;
}

/// Within a group first to the router's number, then to its chassis; the cable to group g is at
/// router g of the first chassis.
NetworkLoad::Latencies NetworkLoad::by_dragonfly(int from, int to) {
  const auto& n = machine_.counts;
  const std::size_t green = levels_.front().down + 1;
  // A node's two links are one latency, each cable between routers another half.
  Latencies way{0, 1, 0};
  on(levels_.front().up, as_size(from));
  on(levels_.front().down, as_size(to));
  struct Router {
    int group, chassis, number;
  };
  const auto router_of = [&](int node) {
    const int router = node / n[3];
    return Router{router / (n[1] * n[2]), router / n[2] % n[1], router % n[2]};
  };
  Router at = router_of(from);
  const Router end = router_of(to);
  const auto within = [&](const Router& next) {
    const auto router = [&] { return (at.group * n[1] + at.chassis) * n[2] + at.number; };
    if (at.number != next.number) {
      on(green, as_size(router() * n[2] + next.number));
      at.number = next.number;
      way[1] += 0.5;
    }
    if (at.chassis != next.chassis) {
      on(green + 1, as_size(router() * n[1] + next.chassis));
      at.chassis = next.chassis;
      way[1] += 0.5;
    }
  };
  if (at.group != end.group) {
    within({at.group, 0, end.group});
    on(green + 2, as_size(at.group * n[0] + end.group));
    way[1] += 0.5;
    at = {end.group, 0, at.group};
  }
  within(end);
  return way;
}

/// From node to node, each of which differs from the one before in one digit of its number.
NetworkLoad::Latencies NetworkLoad::by_bcube(int from, int to) {
  Latencies way{};
  const int ports = machine_.counts[0];
  const int levels = machine_.counts[1];
  int stride = 1;
  int at = from;
  for (int level = 0; level < levels; ++level, stride *= ports) {
    const int step = (to / stride % ports - at / stride % ports) * stride;
    if (step == 0) continue;
    on(kFirstOfNetwork, as_size(at * levels + level));
    at += step;
    on(kFirstOfNetwork + 1, as_size(at * levels + level));
    way[1] += 1;
  }
  return way;
}

NetworkLoad::Latencies NetworkLoad::add(int from, int to) {
  if (from == to) return {};
  const int a = from / machine_.ranks_per_node;
  const int b = to / machine_.ranks_per_node;
  Latencies way{1, 0, 0};
  if (a == b) {
    on(kOutOfRank, as_size(from));
    on(kIntoRank, as_size(to));
  } else {
    way = machine_.shape == MachineShape::torus       ? by_torus(a, b)
          : machine_.shape == MachineShape::dragonfly ? by_dragonfly(a, b)
          : machine_.shape == MachineShape::bcube     ? by_bcube(a, b)
                                                      : by_tree(a, b);
  }
  double us = 0;
  for (std::size_t tier = 0; tier < kLinkTiers; ++tier)
    if (way[tier] > 0) us += way[tier] * machine_.links[tier].at(0).latency_us;
  if (us > longest_us_) {
    longest_us_ = us;
    longest_ = way;
  }
  return way;
}

FlowCost NetworkLoad::cost() const {
  FlowCost cost;
  cost.latencies = longest_;
  for (const Kind& kind : kinds_) {
    const auto begin = messages_.begin() + static_cast<std::ptrdiff_t>(kind.begin);
    const auto busiest = std::max_element(begin, begin + static_cast<std::ptrdiff_t>(kind.count));
    if (kind.count == 0) continue;
    double& load = cost.load[static_cast<std::size_t>(kind.tier)];
    load = std::max(load, *busiest / kind.cables);
  }
  return cost;
}

}  // namespace dynamiccl
