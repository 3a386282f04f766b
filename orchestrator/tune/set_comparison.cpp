#include "orchestrator/tune/set_comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/units.hpp"

namespace dynamiccl {
namespace {

/// Each set is looked at after every round; one that is not felled here is looked at again.
constexpr double kFellingRate = 0.01;

/// Surely slower than its reference by more than is harmless.
bool surely_slower(const std::vector<PairedTime>& rounds) {
  const auto ratio = ratio_of(rounds);
  return ratio && ratio->interval && ratio->interval->low > 1 + kHarmlessBand;
}

}  // namespace

std::string text_of(const LaunchSettings& set) {
  std::string text;
  for (const auto& [name, value] : set)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  return text.empty() ? "no launch setting" : text;
}

std::vector<Ask> SetComparison::round(const std::vector<bool>& measured) const {
  std::vector<Ask> asks;
  for (std::size_t i = 0; i < place_.tasks.size(); ++i) {
    const std::size_t t = place_.tasks[i];
    asks.push_back({t, CheckPlan::kPlainArm});
    for (std::size_t s = 0; s < place_.sets.size(); ++s) {
      if (!measured[s]) continue;
      if (!place_.sets[s].empty()) asks.push_back({t, CheckPlan::library_arm(s)});
      if (place_.algorithms[i]) asks.push_back({t, CheckPlan::algorithm_arm(s)});
    }
  }
  return asks;
}

std::size_t SetComparison::arm(std::size_t set, bool named) const {
  if (named) return CheckPlan::algorithm_arm(set);
  return place_.sets[set].empty() ? CheckPlan::kPlainArm : CheckPlan::library_arm(set);
}

std::vector<PairedTime> SetComparison::against_default(std::size_t i, const InForce& force) const {
  const std::size_t t = place_.tasks[i];
  return times.pairs({t, arm(force.set, force.named[i])}, {t, CheckPlan::kPlainArm});
}

void SetComparison::name_by_size(InForce& force) const {
  for (std::size_t i = 0; i < place_.tasks.size(); ++i) {
    if (!place_.algorithms[i]) continue;
    const std::size_t t = place_.tasks[i];
    const Ask named{t, CheckPlan::algorithm_arm(force.set)};
    const Ask own{t, arm(force.set, false)};
    const auto over_default = times.pairs(named, {t, CheckPlan::kPlainArm});
    const bool helps = surely_faster(times.pairs(named, own));
    const bool mends = surely_slower(times.pairs(own, {t, CheckPlan::kPlainArm}));
    force.named[i] =
        (helps || mends) && !fails(over_default) && !seems_slower(over_default, kHarmlessBand);
  }
}

void SetComparison::name_by_collective(InForce& force) const {
  std::map<Collective, std::vector<std::size_t>> collectives;
  for (std::size_t i = 0; i < place_.tasks.size(); ++i)
    if (place_.algorithms[i])
      collectives[check_.plan.tasks[place_.tasks[i]].cell.collective].push_back(i);
  for (const auto& [collective, sizes] : collectives) {
    std::vector<std::vector<PairedTime>> over_default;
    std::vector<std::vector<PairedTime>> over_own;
    for (const std::size_t i : sizes) {
      const std::size_t t = place_.tasks[i];
      const Ask named{t, CheckPlan::algorithm_arm(force.set)};
      over_default.push_back(times.pairs(named, {t, CheckPlan::kPlainArm}));
      over_own.push_back(times.pairs(named, {t, arm(force.set, false)}));
    }
    const auto verdicts = verdicts_of(over_default);
    const Ratio together = joint_ratio(over_own);
    const bool holds =
        std::none_of(over_default.begin(), over_default.end(), fails) &&
        std::find(verdicts.begin(), verdicts.end(), Verdict::slower) == verdicts.end() &&
        std::any_of(over_own.begin(), over_own.end(),
                    [](const auto& rounds) { return surely_faster(rounds); }) &&
        together.interval && together.interval->high < 1;
    for (const std::size_t i : sizes) force.named[i] = holds;
  }
}

InForce SetComparison::with_algorithms(std::size_t set) const {
  InForce force{set, std::vector<bool>(place_.tasks.size(), false)};
  if (is_for_all_sizes(check_.plan.base.groups[place_.plain].backend))
    name_by_collective(force);
  else
    name_by_size(force);
  return force;
}

std::string SetComparison::felled_by(const InForce& force) const {
  std::vector<std::vector<PairedTime>> sizes;
  for (std::size_t i = 0; i < place_.tasks.size(); ++i) sizes.push_back(against_default(i, force));
  const auto verdicts = verdicts_of(sizes, kFellingRate);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const bool failed = fails(sizes[i]);
    if (!failed && verdicts[i] != Verdict::slower) continue;
    const WorkCell& cell = check_.plan.tasks[place_.tasks[i]].cell;
    const std::string where =
        fmt::format("{} {}", name_of(cell.collective), format_bytes(cell.size));
    return failed ? where + " does not run"
                  : fmt::format("{} takes {:.2f} of the default's time", where,
                                ratio_of(sizes[i])->value);
  }
  return "";
}

bool SetComparison::tells(std::size_t i, const InForce& force) const {
  const auto ratio = ratio_of(against_default(i, force));
  return ratio && ratio->interval && (ratio->interval->high < 1 || ratio->interval->low > 1);
}

double SetComparison::score(const InForce& force) const {
  double sum = 0;
  for (std::size_t i = 0; i < place_.tasks.size(); ++i)
    if (tells(i, force)) sum += std::log(ratio_of(against_default(i, force))->value);
  return sum / static_cast<double>(std::max<std::size_t>(1, place_.tasks.size()));
}

bool SetComparison::surely_better(const InForce& a, const InForce& b) const {
  std::vector<std::vector<PairedTime>> sizes;
  for (std::size_t i = 0; i < place_.tasks.size(); ++i) {
    const std::size_t t = place_.tasks[i];
    const Ask one{t, arm(a.set, a.named[i])};
    const Ask other{t, arm(b.set, b.named[i])};
    if (one != other && (tells(i, a) || tells(i, b))) sizes.push_back(times.pairs(one, other));
  }
  const Ratio together = joint_ratio(sizes);
  return together.interval && together.interval->high < 1;
}

std::vector<InForce> SetComparison::candidates() const {
  std::vector<std::pair<double, InForce>> gaining;
  for (std::size_t s = 0; s < place_.sets.size(); ++s) {
    InForce force = with_algorithms(s);
    const double gain = score(force);
    if (gain < 0 && felled_by(force).empty()) gaining.emplace_back(gain, std::move(force));
  }
  std::stable_sort(gaining.begin(), gaining.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  // Of the sets that the one which gains most does not surely beat, the one that changes least
  // comes first.
  std::size_t first = 0;
  for (std::size_t i = 1; i < gaining.size(); ++i)
    if (place_.sets[gaining[i].second.set].size() < place_.sets[gaining[first].second.set].size() &&
        !surely_better(gaining.front().second, gaining[i].second))
      first = i;
  const auto place = gaining.begin() + static_cast<std::ptrdiff_t>(first);
  if (first > 0) std::rotate(gaining.begin(), place, place + 1);
  std::vector<InForce> order;
  for (auto& [gain, force] : gaining) order.push_back(std::move(force));
  return order;
}

}  // namespace dynamiccl
