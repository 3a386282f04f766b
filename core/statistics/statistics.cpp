#include "core/statistics/statistics.hpp"

#include <algorithm>
#include <cmath>

#include "core/statistics/rank_statistics.hpp"
#include "core/vocabulary/error.hpp"

namespace dynamiccl {
namespace {

std::vector<double> logarithms(const std::vector<double>& values) {
  std::vector<double> logs;
  logs.reserve(values.size());
  for (const double value : values) logs.push_back(std::log(value));
  return logs;
}

bool all_positive(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](double v) { return v > 0 && std::isfinite(v); });
}

/// A ratio of few launches: its value stays the median's, as a mean of logarithms follows one
/// launch that went wrong; t tells how far it may lie.
void set_interval(Ratio& ratio, double centre, double standard_error, double degrees,
                  double confidence, const char* method) {
  const double reach = student_t_quantile(0.5 + confidence / 2, degrees) * standard_error;
  ratio.interval = Interval{std::min(ratio.value, std::exp(centre - reach)),
                            std::max(ratio.value, std::exp(centre + reach)), confidence, method};
  ratio.centre = std::exp(centre);
  ratio.reach = reach;
  ratio.degrees = degrees;
}

Interval exponential(const RankEstimate& logs, double confidence, const char* method) {
  return {std::exp(logs.low), std::exp(logs.high), confidence, method};
}

void set_interval(Ratio& ratio, const RankEstimate& logs, double degrees, double confidence,
                  const char* method) {
  ratio.value = ratio.centre = std::exp(logs.value);
  ratio.interval = exponential(logs, confidence, method);
  ratio.reach = ratio.centre > 1 ? logs.value - logs.low : logs.high - logs.value;
  ratio.degrees = degrees;
}

/// Fewer are no better off with ranks: t makes more of them.
constexpr std::size_t kFewestForRanks = 6;

}  // namespace

std::optional<Interval> launch_interval(const std::vector<double>& launch_medians,
                                        double confidence) {
  const std::size_t n = launch_medians.size();
  if (n < 3 || !all_positive(launch_medians)) return std::nullopt;
  const auto logs = logarithms(launch_medians);
  std::optional<Interval> interval;
  if (n >= kFewestForRanks) {
    if (const auto ranked = rank_median(logs, confidence))
      interval = exponential(*ranked, confidence, "order-statistics");
  }
  if (!interval) {
    const double centre = mean(logs);
    const double reach = student_t_quantile(0.5 + confidence / 2, static_cast<double>(n - 1)) *
                         standard_deviation(logs) / std::sqrt(static_cast<double>(n));
    interval = Interval{std::exp(centre - reach), std::exp(centre + reach), confidence, "t-log"};
  }
  // Of few launches in two groups, t can leave the median outside.
  const double middle = median(launch_medians);
  interval->low = std::min(interval->low, middle);
  interval->high = std::max(interval->high, middle);
  return interval;
}

std::string words_of_method(const std::string& method) {
  if (method == "order-statistics") return "order statistics of launch medians";
  if (method == "signed-rank") return "signed ranks of blocks";
  if (method == "t-log") return "t on the logarithms of launch medians";
  if (method == "signed-rank-paired")
    return "paired by block, signed ranks of differences of logarithms";
  if (method == "t-log-paired")
    return "median of the blocks' ratios, interval by t on their logarithms";
  if (method == "rank-sum") return "unpaired, rank sum of logarithms";
  if (method == "welch-log") return "unpaired, ratio of medians, interval by Welch on logarithms";
  return method;
}

namespace {

/// A shift of ranks is one of two samples of the same shape. Six launches 10 % apart against forty
/// 1 % apart: its intervals cover 79 % and 9 % of equal sides are called different; with Welch's
/// where one spreads more than twice as much, 94 % and 2 %.
bool alike_spreads(const std::vector<double>& a, const std::vector<double>& b) {
  constexpr double kMostTimes = 2;
  const double one = median_absolute_deviation(a);
  const double other = median_absolute_deviation(b);
  return std::max(one, other) <= kMostTimes * std::min(one, other);
}

}  // namespace

Ratio ratio_unpaired(const std::vector<double>& numerator, const std::vector<double>& denominator,
                     double confidence) {
  Ratio ratio;
  ratio.value = median(numerator) / median(denominator);
  if (numerator.size() < 3 || denominator.size() < 3 || !all_positive(numerator) ||
      !all_positive(denominator)) {
    return ratio;
  }
  const auto a = logarithms(numerator);
  const auto b = logarithms(denominator);
  const double va = std::pow(standard_deviation(a), 2) / static_cast<double>(a.size());
  const double vb = std::pow(standard_deviation(b), 2) / static_cast<double>(b.size());
  const double spread = va + vb;
  // Welch-Satterthwaite; equal samples have no variance and any number of degrees will do.
  const double degrees = spread > 0 ? spread * spread /
                                          (va * va / static_cast<double>(a.size() - 1) +
                                           vb * vb / static_cast<double>(b.size() - 1))
                                    : static_cast<double>(a.size() + b.size() - 2);
  if (std::min(a.size(), b.size()) >= kFewestForRanks && alike_spreads(a, b)) {
    if (const auto shift = rank_shift(a, b, confidence)) {
      set_interval(ratio, *shift, degrees, confidence, "rank-sum");
      return ratio;
    }
  }
  set_interval(ratio, mean(a) - mean(b), std::sqrt(spread), degrees, confidence, "welch-log");
  return ratio;
}

Ratio ratio_paired(const std::vector<double>& numerator, const std::vector<double>& denominator,
                   double confidence) {
  DYN_ASSERT(numerator.size() == denominator.size(), "paired samples have equal counts");
  Ratio ratio;
  ratio.value = median(numerator) / median(denominator);
  if (numerator.size() < 3 || !all_positive(numerator) || !all_positive(denominator)) return ratio;
  std::vector<double> differences;
  differences.reserve(numerator.size());
  for (std::size_t i = 0; i < numerator.size(); ++i) {
    differences.push_back(std::log(numerator[i]) - std::log(denominator[i]));
  }
  const auto n = static_cast<double>(differences.size());
  if (differences.size() >= kFewestForRanks) {
    if (const auto centre = rank_centre(differences, confidence)) {
      set_interval(ratio, *centre, n - 1, confidence, "signed-rank-paired");
      return ratio;
    }
  }
  ratio.value = std::exp(median(differences));
  set_interval(ratio, mean(differences), standard_deviation(differences) / std::sqrt(n), n - 1,
               confidence, "t-log-paired");
  return ratio;
}

double percent_faster(double slower, double faster) { return (slower - faster) / faster * 100.0; }

}  // namespace dynamiccl
