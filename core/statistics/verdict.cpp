#include "core/statistics/verdict.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace dynamiccl {
namespace {

/// Looks at growing counts: each more costs coverage.
int grown(int look) {
  constexpr double kGrowth = 1.5;
  return std::max(look + 1, static_cast<int>(std::ceil(look * kGrowth)));
}

Verdict by_interval(const Ratio& time_ratio, EquivalenceBand band) {
  if (!time_ratio.interval) return Verdict::unclear;
  const double high = 1.0 + band.relative;
  const double low = 1.0 / high;
  if (time_ratio.interval->low > high) return Verdict::slower;
  if (time_ratio.interval->high < low) return Verdict::faster;
  if (time_ratio.interval->low >= low && time_ratio.interval->high <= high) return Verdict::same;
  return Verdict::unclear;
}

bool is_difference(Verdict verdict) {
  return verdict == Verdict::slower || verdict == Verdict::faster;
}

/// What speaks for a difference: the ratio, or where waits are in it the bound nearer to 1.
/// nullptr: 1 lies between the bounds.
const Ratio* nearer_to_one(const Ratio& time_ratio) {
  if (!time_ratio.waits) return &time_ratio;
  const auto& [least, most, cause] = *time_ratio.waits;
  if (least.interval && least.centre > 1) return &least;
  if (most.interval && most.centre < 1) return &most;
  return nullptr;
}

}  // namespace

Verdict judge(const Ratio& time_ratio, EquivalenceBand band) {
  const Verdict by_times = by_interval(time_ratio, band);
  if (!time_ratio.waits) return by_times;
  if (const Ratio* bound = nearer_to_one(time_ratio)) {
    const Verdict verdict = by_interval(*bound, band);
    if (is_difference(verdict)) return verdict;
  }
  const bool both_same = by_interval(time_ratio.waits->least, band) == Verdict::same &&
                         by_interval(time_ratio.waits->most, band) == Verdict::same;
  if (both_same || by_times == Verdict::unclear) return by_times;
  return Verdict::not_judged;
}

std::optional<double> factor_at_least(const Ratio& time_ratio, EquivalenceBand band) {
  if (!time_ratio.waits || !is_difference(judge(time_ratio, band))) return std::nullopt;
  const auto& interval = nearer_to_one(time_ratio)->interval;
  return interval->low > 1 ? interval->low : interval->high;
}

std::optional<int> launches_needed(const Ratio& time_ratio, EquivalenceBand band,
                                   int launches_now) {
  if (!time_ratio.interval || launches_now < 2) return std::nullopt;
  const double at = std::log(time_ratio.value);
  // The farther side: a rank interval reaches less far on the other.
  const double half =
      std::max(std::log(time_ratio.interval->high) - at, at - std::log(time_ratio.interval->low));
  const double edge = std::log1p(band.relative);
  const double gap = std::fabs(edge - std::fabs(at));
  // A ratio right at the edge would need for ever; the band itself bounds what is worth resolving.
  const double wanted = std::max(gap, 0.25 * edge);
  const double factor = (half / wanted) * (half / wanted);
  return std::max(launches_now + 1, static_cast<int>(std::ceil(launches_now * factor)));
}

int last_look(int launches, const StoppingRule& rule) {
  if (launches >= rule.max_launches) return rule.max_launches;
  int last = 0;
  for (int look = std::max(2, rule.min_launches); look <= launches; look = grown(look)) last = look;
  return last;
}

double outside_band_probability(const Ratio& ratio, EquivalenceBand band) {
  const Ratio* judged = nearer_to_one(ratio);
  if (judged == nullptr || !judged->interval) return 1;
  const Ratio& time_ratio = *judged;
  // Of few launches, t may lie where the medians do not.
  const bool one_side = (time_ratio.value > 1) == (time_ratio.centre > 1);
  const double edge = std::log1p(band.relative);
  if (!one_side || std::fabs(std::log(time_ratio.value)) <= edge) return 1;
  const double beyond = std::fabs(std::log(time_ratio.centre)) - edge;
  if (beyond <= 0) return 1;
  // Launches without any spread: whatever is outside is surely outside.
  if (time_ratio.reach <= 0) return 0;
  const double quantile =
      student_t_quantile(0.5 + time_ratio.interval->confidence / 2, time_ratio.degrees);
  return 2 * (1 - student_t_probability(beyond / time_ratio.reach * quantile, time_ratio.degrees));
}

std::vector<double> adjusted_for_false_discoveries(const std::vector<double>& probabilities) {
  std::vector<std::size_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](auto a, auto b) { return probabilities[a] > probabilities[b]; });
  std::vector<double> adjusted(probabilities.size());
  const auto rows = static_cast<double>(probabilities.size());
  double least = 1;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const double rank = rows - static_cast<double>(i);
    least = std::min(least, probabilities[order[i]] * rows / rank);
    adjusted[order[i]] = least;
  }
  return adjusted;
}

std::vector<Verdict> judge_table(const std::vector<Ratio>& time_ratios, EquivalenceBand band,
                                 double false_discovery_rate) {
  std::vector<double> probabilities;
  for (const auto& ratio : time_ratios)
    if (ratio.interval) probabilities.push_back(outside_band_probability(ratio, band));
  const auto adjusted = adjusted_for_false_discoveries(probabilities);
  std::vector<Verdict> verdicts;
  auto next = adjusted.begin();
  for (const auto& ratio : time_ratios) {
    if (!ratio.interval) {
      verdicts.push_back(Verdict::unclear);
    } else if (*next++ <= false_discovery_rate) {
      verdicts.push_back(nearer_to_one(ratio)->centre > 1 ? Verdict::slower : Verdict::faster);
    } else {
      const Verdict alone = judge(ratio, band);
      verdicts.push_back(is_difference(alone) ? Verdict::unclear : alone);
    }
  }
  return verdicts;
}

}  // namespace dynamiccl
