#pragma once

#include <map>
#include <optional>
#include <vector>

#include "core/statistics/verdict.hpp"
#include "tuner/search/confirmation.hpp"

namespace dynamiccl {

/// Times of arms by rounds, each of which has one launch of everything that it measures.
class CheckTimes {
 public:
  /// One round. @param measured one answer per ask
  void add(const std::vector<Ask>& asks, const std::vector<Measured>& measured);
  /// Of the rounds that have both; NaN where a launch failed.
  [[nodiscard]] std::vector<PairedTime> pairs(const Ask& chosen, const Ask& reference) const;
  [[nodiscard]] int rounds() const { return rounds_; }

 private:
  int rounds_ = 0;
  std::map<Ask, std::map<int, double>> us_;
};

/// Do these rounds, at this confidence, surely take less time than their reference?
bool surely_faster(const std::vector<PairedTime>& rounds, double confidence = 0.95);
/// More than it by over `band`, in the middle, at a confidence that one equal size of ten reaches
/// by chance: worth more launches.
bool seems_slower(const std::vector<PairedTime>& rounds, double band);
/// Did the chosen side fail in more than half of at least two rounds where its reference worked?
bool fails(const std::vector<PairedTime>& rounds);

/// Verdicts over many sizes, FASTER and SLOWER each at a false discovery rate over all of them: the
/// many that a setting makes faster do not make it easier to call one of the others slower.
std::vector<Verdict> verdicts_of(const std::vector<std::vector<PairedTime>>& sizes,
                                 double false_discovery_rate = 0.05);

/// Ratio of all these sizes together, each of the same weight (geometric mean within a round,
/// paired over rounds). Sizes that failed in a round do not count there.
Ratio joint_ratio(const std::vector<std::vector<PairedTime>>& sizes);

}  // namespace dynamiccl
