#include "core/statistics/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

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

/// Continued fraction of the regularised incomplete beta function (modified Lentz; DLMF 8.17.22).
double beta_fraction(double a, double b, double x) {
  constexpr double tiny = 1e-300;
  double c = 1.0;
  double d = 1.0 - (a + b) * x / (a + 1.0);
  d = 1.0 / (std::fabs(d) < tiny ? tiny : d);
  double h = d;
  for (int m = 1; m <= 300; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    for (const double step : {even, odd}) {
      d = 1.0 + step * d;
      d = 1.0 / (std::fabs(d) < tiny ? tiny : d);
      c = 1.0 + step / c;
      c = std::fabs(c) < tiny ? tiny : c;
      h *= c * d;
    }
    if (std::fabs(c * d - 1.0) < 1e-14) break;
  }
  return h;
}

double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
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

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const double place = q * static_cast<double>(values.size() - 1);
  const auto lower = static_cast<std::size_t>(place);
  const auto at = [&](std::size_t index) {
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index),
                     values.end());
    return values[index];
  };
  const double low = at(lower);
  const double rest = place - static_cast<double>(lower);
  if (rest == 0) return low;
  const double high = at(lower + 1);
  // Also between two infinities, whose difference is no number.
  return high == low ? low : low + rest * (high - low);
}

double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

double mean(const std::vector<double>& values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double standard_deviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double centre = mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - centre) * (value - centre);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

double median_absolute_deviation(const std::vector<double>& values) {
  const double centre = median(values);
  std::vector<double> distances;
  distances.reserve(values.size());
  for (const double value : values) distances.push_back(std::fabs(value - centre));
  return median(std::move(distances));
}

double lag1_autocorrelation(const std::vector<double>& values) {
  if (values.size() < 3) return 0;
  const double centre = mean(values);
  double product = 0;
  double square = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double here = values[i] - centre;
    square += here * here;
    if (i > 0) product += here * (values[i - 1] - centre);
  }
  return square > 0 ? product / square : 0;
}

double student_t_probability(double t, double degrees) {
  const double tail = 0.5 * incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t));
  return t > 0 ? 1 - tail : tail;
}

double student_t_quantile(double probability, double degrees) {
  DYN_ASSERT(probability > 0 && probability < 1 && degrees > 0,
             "a t quantile needs 0 < p < 1 and degrees > 0");
  double low = -1;
  double high = 1;
  while (student_t_probability(low, degrees) > probability) low *= 2;
  while (student_t_probability(high, degrees) < probability) high *= 2;
  for (int i = 0; i < 200 && high - low > 1e-12 * std::max(1.0, std::fabs(low)); ++i) {
    const double middle = 0.5 * (low + high);
    (student_t_probability(middle, degrees) < probability ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

double normal_quantile(double probability) {
  double low = -40;
  double high = 40;
  for (int i = 0; i < 200; ++i) {
    const double middle = 0.5 * (low + high);
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < probability ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

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
