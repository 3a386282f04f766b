#include "core/statistics/descriptive.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {
namespace {

/// Continued fraction of the regularised incomplete beta function (modified Lentz; DLMF 8.17.22).
/// Boost.Math has the same to 4.5e-13; but ranks and trainers link this, and are built without it.
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

}  // namespace dynamiccl
