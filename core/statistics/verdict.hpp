#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/statistics/statistics.hpp"
#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// What a comparison of B with its base A says. FASTER and SLOWER speak of B. NOT JUDGED: there is
/// a difference, or none, that waits for a core may explain.
enum class Verdict { same, faster, slower, unclear, not_judged };
template <>
struct NameTable<Verdict> {
  static constexpr std::string_view what = "verdict";
  static constexpr std::array entries{
      Named{Verdict::same, "SAME"}, Named{Verdict::faster, "FASTER"},
      Named{Verdict::slower, "SLOWER"}, Named{Verdict::unclear, "UNCLEAR"},
      Named{Verdict::not_judged, "NOT JUDGED"}};
};

/// Ratios inside [1/(1+band), 1+band] count as equal. 2 % unless the user says otherwise.
struct EquivalenceBand {
  double relative = 0.02;
};

/// SAME: interval wholly inside the band; FASTER, SLOWER: wholly outside on one side; else UNCLEAR.
/// Without an interval (one launch) the verdict is UNCLEAR, whatever the values. Where ranks waited
/// for cores, FASTER and SLOWER are what the nearer of both bounds is, SAME what both are; what
/// else is so by the times alone is NOT JUDGED.
/// @param time_ratio time of B over time of A
Verdict judge(const Ratio& time_ratio, EquivalenceBand band);

/// How far the ratio is from 1 at least, at the interval's confidence, where waits for a core are
/// in it and it is surely above or below all the same; nullopt for any other.
std::optional<double> factor_at_least(const Ratio& time_ratio, EquivalenceBand band);

/// Launches per side after which the interval would be about as narrow as the band, or as the gap
/// to the band's nearer edge where that is wider; nullopt without an interval.
std::optional<int> launches_needed(const Ratio& time_ratio, EquivalenceBand band, int launches_now);

/// When to stop adding launches: the interval's relative half-width against a target, looked at
/// at geometrically growing counts alone (min 6, then x1.5) and reached at two of them in a row.
struct StoppingRule {
  double target_relative_half_width = 0.05;
  int min_launches = 6;
  int max_launches = 40;
};
/// Largest count up to `launches` at which the rule looks: its own growing counts and the maximum;
/// 0 before the first.
int last_look(int launches, const StoppingRule& rule);

/// Two-sided probability of a ratio as far outside the band as this one, or farther, where the true
/// one is at the band's nearer edge: below 1 - confidence exactly when the interval at that
/// confidence is wholly outside. 1 inside the band, and without an interval. Where ranks waited for
/// cores, that of the bound that is nearer to 1.
double outside_band_probability(const Ratio& time_ratio, EquivalenceBand band);

/// Benjamini and Hochberg (1995): each probability raised to the smallest false discovery rate at
/// which its row would be called. In the order given.
std::vector<double> adjusted_for_false_discoveries(const std::vector<double>& probabilities);

/// Verdicts of a table. FASTER and SLOWER at a false discovery rate over its rows: of the rows so
/// called, at most that share is expected to lie inside the band. SAME as in judge. A table of one
/// row is judge at confidence 1 - rate. Rows without an interval are UNCLEAR and do not count.
std::vector<Verdict> judge_table(const std::vector<Ratio>& time_ratios, EquivalenceBand band,
                                 double false_discovery_rate = 0.05);

}  // namespace dynamiccl
