#include "tuner/agents/narrowing.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

namespace dynamiccl {
namespace {

/// Which of two measurements was surely lower: beyond twice the noise of their difference.
bool surely_slower(const MeasuredArms& measured, std::size_t arm, std::size_t than) {
  const double spread =
      measured.noise_sd * std::sqrt(1.0 / measured.tries[arm] + 1.0 / measured.tries[than]);
  return measured.seen[arm] - measured.seen[than] > 2 * spread;
}

bool is_measured(const MeasuredArms& measured, std::size_t arm) {
  return measured.tries[arm] > 0 && !measured.failed[arm];
}

/// Nearest measured arms below and above `peak` along a knob, all other values alike.
struct Sides {
  std::optional<std::size_t> below;
  std::optional<std::size_t> above;
};
Sides sides_of(const MeasuredArms& measured, std::size_t first, std::size_t last, std::size_t peak,
               std::size_t knob) {
  const auto& arms = measured.space.arms();
  Sides sides;
  for (std::size_t a = first; a < last; ++a) {
    if (a == peak || arms[a][knob] == 0 || !is_measured(measured, a)) continue;
    Action like = arms[a];
    like[knob] = arms[peak][knob];
    if (like != arms[peak]) continue;
    // Arms are in rising order of every value.
    if (arms[a][knob] < arms[peak][knob]) sides.below = a;
    if (arms[a][knob] > arms[peak][knob] && !sides.above) sides.above = a;
  }
  return sides;
}

bool is_peak(const MeasuredArms& measured, std::size_t first, std::size_t last, std::size_t arm) {
  const ActionSpace& space = measured.space;
  for (std::size_t k = space.implementation_knobs(); k < space.knobs().size(); ++k) {
    const std::uint8_t place = space.arms()[arm][k];
    if (place == 0 || space.knobs()[k].values.size() < 4) continue;
    const auto [below, above] = sides_of(measured, first, last, arm, k);
    const bool lowest = place == 1;
    const bool highest = place + std::size_t{1} == space.knobs()[k].values.size();
    const bool falls_below = below ? surely_slower(measured, *below, arm) : lowest;
    const bool falls_above = above ? surely_slower(measured, *above, arm) : highest;
    if (falls_below && falls_above && (below || above)) return true;
  }
  return false;
}

bool is_near(const ActionSpace& space, const Action& arm, const Action& peak) {
  for (std::size_t k = space.implementation_knobs(); k < arm.size(); ++k)
    if (arm[k] != 0 && peak[k] != 0 && std::abs(int{arm[k]} - int{peak[k]}) > 1) return false;
  return true;
}

}  // namespace

std::vector<bool> beyond_peaks(const MeasuredArms& measured) {
  const auto& arms = measured.space.arms();
  std::vector<bool> closed(arms.size(), false);
  for (const auto& [first, last] : measured.space.subspaces()) {
    std::optional<std::size_t> fastest;
    for (std::size_t a = first; a < last; ++a)
      if (is_measured(measured, a) && (!fastest || measured.seen[a] < measured.seen[*fastest]))
        fastest = a;
    if (!fastest || !is_peak(measured, first, last, *fastest)) continue;
    for (std::size_t a = first; a < last; ++a)
      closed[a] = a != 0 && !is_near(measured.space, arms[a], arms[*fastest]);
  }
  return closed;
}

std::vector<bool> more_aggressive_than_slow(const MeasuredArms& measured) {
  const auto& arms = measured.space.arms();
  std::vector<bool> closed(arms.size(), false);
  const std::size_t resources = measured.space.implementation_knobs();
  for (const auto& [first, last] : measured.space.subspaces())
    for (std::size_t slow = std::max<std::size_t>(first, 1); slow < last; ++slow) {
      const bool compared = is_measured(measured, slow) && is_measured(measured, 0);
      if (!measured.failed[slow] && !(compared && surely_slower(measured, slow, 0))) continue;
      for (std::size_t a = slow + 1; a < last; ++a) {
        bool more = true;
        for (std::size_t k = resources; k < arms[a].size(); ++k) {
          const bool no_place = (arms[a][k] == 0) != (arms[slow][k] == 0);
          more = more && !no_place && arms[a][k] >= arms[slow][k];
        }
        closed[a] = closed[a] || more;
      }
    }
  return closed;
}

}  // namespace dynamiccl
