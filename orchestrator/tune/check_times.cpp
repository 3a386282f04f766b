#include "orchestrator/tune/check_times.hpp"

#include <algorithm>
#include <cmath>

namespace dynamiccl {

void CheckTimes::add(const std::vector<Ask>& asks, const std::vector<Measured>& measured) {
  DYN_ASSERT(asks.size() == measured.size(), "one answer per ask");
  for (std::size_t i = 0; i < asks.size(); ++i)
    us_[asks[i]][rounds_] = measured[i].trial.ok ? measured[i].trial.time.count() : NAN;
  ++rounds_;
}

std::vector<PairedTime> CheckTimes::pairs(const Ask& chosen, const Ask& reference) const {
  std::vector<PairedTime> result;
  const auto a = us_.find(chosen);
  const auto b = us_.find(reference);
  if (a == us_.end() || b == us_.end()) return result;
  for (const auto& [round, us] : a->second) {
    const auto other = b->second.find(round);
    if (other != b->second.end()) result.push_back({us, other->second});
  }
  return result;
}

bool surely_faster(const std::vector<PairedTime>& rounds, double confidence) {
  const auto ratio = ratio_of(rounds, confidence);
  return ratio && ratio->interval && ratio->interval->high < 1;
}

bool seems_slower(const std::vector<PairedTime>& rounds, double band) {
  const auto ratio = ratio_of(rounds, 0.8);
  return ratio && ratio->value > 1 + band && (!ratio->interval || ratio->interval->low > 1);
}

bool fails(const std::vector<PairedTime>& rounds) {
  std::size_t references = 0;
  std::size_t both = 0;
  for (const PairedTime& round : rounds) {
    if (!(round.default_us > 0)) continue;
    ++references;
    both += round.chosen_us > 0 ? 1 : 0;
  }
  return references >= 2 && both * 2 < references;
}

std::vector<Verdict> verdicts_of(const std::vector<std::vector<PairedTime>>& sizes,
                                 double false_discovery_rate) {
  std::vector<Verdict> verdicts;
  std::vector<double> faster;
  std::vector<double> slower;
  for (const auto& rounds : sizes) {
    const Ratio ratio = ratio_of(rounds).value_or(Ratio{});
    const double chance = outside_band_probability(ratio, EquivalenceBand{});
    faster.push_back(ratio.centre < 1 ? chance : 1);
    slower.push_back(ratio.centre > 1 ? chance : 1);
    verdicts.push_back(judge(ratio, EquivalenceBand{}) == Verdict::same ? Verdict::same
                                                                        : Verdict::unclear);
  }
  faster = adjusted_for_false_discoveries(faster);
  slower = adjusted_for_false_discoveries(slower);
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    if (faster[i] <= false_discovery_rate) verdicts[i] = Verdict::faster;
    if (slower[i] <= false_discovery_rate) verdicts[i] = Verdict::slower;
  }
  return verdicts;
}

Ratio joint_ratio(const std::vector<std::vector<PairedTime>>& sizes) {
  std::size_t most = 0;
  for (const auto& rounds : sizes) most = std::max(most, rounds.size());
  std::vector<double> together;
  for (std::size_t r = 0; r < most; ++r) {
    double sum = 0;
    double count = 0;
    for (const auto& rounds : sizes) {
      if (r >= rounds.size()) continue;
      const double log_ratio = std::log(rounds[r].chosen_us / rounds[r].default_us);
      if (!std::isfinite(log_ratio)) continue;
      sum += log_ratio;
      ++count;
    }
    if (count > 0) together.push_back(std::exp(sum / count));
  }
  if (together.empty()) return {};
  return ratio_paired(together, std::vector<double>(together.size(), 1.0));
}

}  // namespace dynamiccl
