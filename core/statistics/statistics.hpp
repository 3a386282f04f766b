#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/statistics/descriptive.hpp"

namespace dynamiccl {

/// A two-sided confidence interval and the way it was made.
struct Interval {
  double low = 0;
  double high = 0;
  double confidence = 0.95;
  /// "order-statistics", "signed-rank", "signed-rank-paired", "rank-sum"
  /// (core/statistics/rank_statistics.hpp), or of few values "t-log", "t-log-paired", "welch-log"
  std::string method;
};

/// Interval of the launches' median from launch medians (the unit of replication; Hunold,
/// Carpen-Amarie arXiv 1505.07734), on the logarithms: the launch medians are positive and skewed.
/// From six launches on of order statistics, as launches come in groups and have far outliers; of t
/// below. It always holds the median. nullopt below three launches: one has no interval, and the
/// interval of two spans orders of magnitude.
std::optional<Interval> launch_interval(const std::vector<double>& launch_medians,
                                        double confidence = 0.95);

/// How Interval::method is printed: "order statistics of launch medians".
std::string words_of_method(const std::string& method);

struct WaitBounds;

/// A ratio of two typical values with its interval.
struct Ratio {
  double value = 0;
  std::optional<Interval> interval = std::nullopt;
  /// The t distribution that stands for the estimate's own at other confidences: where it is
  /// centred, how far its interval reaches from there towards 1 on the logarithm, and its degrees;
  /// 0 without an interval. Of few launches its centre is not the value, which is a median then.
  double centre = 0;
  double reach = 0;
  double degrees = 0;
  /// What of it may come from waits for a core; nullptr where nothing may.
  std::shared_ptr<const WaitBounds> waits = nullptr;
};

/// Between what two ratios the one lies that would be without waits, as waits only make longer.
struct WaitBounds {
  Ratio least;        ///< what ranks waited is taken off the numerator alone
  Ratio most;         ///< off the denominator alone
  std::string cause;  ///< "ranks waited for a core 12 % of the time in bare-metal, 71 % in ..."
};

/// numerator/denominator from unpaired launch medians, on logarithms: the rank-sum test's shift for
/// six launches or more a side of like spreads, else the medians' ratio with Welch's t.
Ratio ratio_unpaired(const std::vector<double>& numerator, const std::vector<double>& denominator,
                     double confidence = 0.95);
/// numerator[i]/denominator[i] from the same block i, on the logarithms' differences: the centre
/// of the signed-rank test from six blocks on, below that their median with t's interval.
/// @throws Error(bug) when the lengths differ
Ratio ratio_paired(const std::vector<double>& numerator, const std::vector<double>& denominator,
                   double confidence = 0.95);

/// "X % faster" has one meaning here: (slower - faster) / faster * 100.
double percent_faster(double slower, double faster);

}  // namespace dynamiccl
