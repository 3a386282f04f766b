#include "profiles/detect/latency_places.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace dynamiccl {
namespace {

/// Beyond this a leap is no noise of two rounds alike.
constexpr double kLeap = 1.5;
constexpr double kLeast_us = 5;
constexpr std::size_t kLevels = 3;

/// Who stands together, by the number of the first of them.
using Groups = std::vector<std::size_t>;

struct Level {
  Groups groups;
  double near_us = 0;  ///< of the slowest pair that stands together
  double far_us = 0;   ///< of the fastest one that does not
};

std::vector<double> all_pairs(const NodeLatencies& round) {
  std::vector<double> values;
  for (std::size_t i = 0; i < round.nodes.size(); ++i)
    for (std::size_t j = i + 1; j < round.nodes.size(); ++j) values.push_back(round.us[i][j]);
  std::sort(values.begin(), values.end());
  return values;
}

/// @returns empty where nearness below the limit is none that all who are near share
Groups together(const NodeLatencies& round, double limit_us) {
  const std::size_t count = round.nodes.size();
  const auto near = [&](std::size_t a, std::size_t b) {
    return a == b || round.us[std::min(a, b)][std::max(a, b)] < limit_us;
  };
  Groups groups(count);
  for (std::size_t i = 0; i < count; ++i) {
    groups[i] = i;
    for (std::size_t j = 0; j < i; ++j)
      if (near(i, j)) {
        groups[i] = groups[j];
        break;
      }
  }
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t j = i + 1; j < count; ++j)
      if (near(i, j) != (groups[i] == groups[j])) return {};
  return groups;
}

/// The nearest first.
std::vector<Level> levels_of(const NodeLatencies& round) {
  const auto values = all_pairs(round);
  std::vector<Level> levels;
  if (values.empty() || values.front() <= 0) return levels;
  for (std::size_t k = 0; k + 1 < values.size(); ++k) {
    if (values[k + 1] < values[k] * kLeap || values[k + 1] - values[k] < kLeast_us) continue;
    auto groups = together(round, std::sqrt(values[k] * values[k + 1]));
    if (!groups.empty()) levels.push_back({std::move(groups), values[k], values[k + 1]});
  }
  if (levels.size() > kLevels) levels.resize(kLevels);
  return levels;
}

std::string in_us(double us) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g us", us);
  return text.data();
}

bool alike(const std::vector<Level>& a, const std::vector<Level>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Level& x, const Level& y) { return x.groups == y.groups; });
}

}  // namespace

NodePlaces places_by_latency(const std::vector<NodeLatencies>& rounds) {
  if (rounds.size() < 2) return {};
  const auto levels = levels_of(rounds.front());
  if (levels.empty()) return {};
  for (const auto& round : rounds)
    if (round.nodes != rounds.front().nodes || !alike(levels, levels_of(round))) return {};
  std::string how = "measured latency, " + in_us(levels.front().near_us);
  for (const Level& level : levels) how += " | " + in_us(level.far_us);
  const auto& nodes = rounds.front().nodes;
  constexpr std::array names{&NodePlace::leaf_switch, &NodePlace::rack, &NodePlace::zone};
  NodePlaces places;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    NodePlace& place = places[nodes[i]];
    place.how = how;
    for (std::size_t level = 0; level < levels.size(); ++level)
      place.*names.at(level) = "near " + nodes[levels[level].groups[i]];
    if (levels.size() < names.size()) place.*names.at(levels.size()) = "all";
  }
  return places;
}

}  // namespace dynamiccl
