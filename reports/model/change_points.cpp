#include "reports/model/change_points.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/vocabulary/splitmix64.hpp"

namespace dynamiccl {
namespace {

constexpr int kOrders = 999;
constexpr double kChance = 0.01;

/// The best place to cut, and how far the halves are apart, in errors of the difference.
std::pair<std::size_t, double> best_cut(const std::vector<double>& values) {
  double sum = 0;
  double squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  const auto n = static_cast<double>(values.size());
  std::pair<std::size_t, double> best{0, 0};
  double left = 0;
  double left_squares = 0;
  for (std::size_t i = 1; i + kLeastStretch <= values.size(); ++i) {
    left += values[i - 1];
    left_squares += values[i - 1] * values[i - 1];
    if (i < kLeastStretch) continue;
    const auto a = static_cast<double>(i);
    const double b = n - a;
    const double right = sum - left;
    const double within =
        left_squares - left * left / a + squares - left_squares - right * right / b;
    const double error = std::sqrt(std::max(within, 1e-12) / (n - 2) * (1 / a + 1 / b));
    const double apart = std::fabs(left / a - right / b) / error;
    if (apart > best.second) best = {i, apart};
  }
  return best;
}

/// How often an order drawn by chance has a cut as good.
double chance_of(std::vector<double> values, double apart) {
  std::uint64_t seed = 1;
  int as_good = 1;
  for (int order = 0; order < kOrders; ++order) {
    for (std::size_t i = values.size(); i > 1; --i)
      std::swap(values[i - 1], values[splitmix64_next(seed) % i]);
    as_good += best_cut(values).second >= apart ? 1 : 0;
  }
  return static_cast<double>(as_good) / (kOrders + 1);
}

void cut(const std::vector<double>& logs, std::size_t begin, std::size_t end,
         std::vector<std::size_t>& points) {
  if (end - begin < 2 * kLeastStretch) return;
  using Offset = std::ptrdiff_t;
  const std::vector<double> values(logs.begin() + static_cast<Offset>(begin),
                                   logs.begin() + static_cast<Offset>(end));
  const auto [place, apart] = best_cut(values);
  if (place == 0 || chance_of(values, apart) > kChance) return;
  cut(logs, begin, begin + place, points);
  points.push_back(begin + place);
  cut(logs, begin + place, end, points);
}

}  // namespace

std::vector<std::size_t> change_points(const std::vector<double>& times) {
  std::vector<double> logs;
  for (const double time : times) logs.push_back(std::log(std::max(time, 1e-9)));
  std::vector<std::size_t> points;
  cut(logs, 0, logs.size(), points);
  return points;
}

}  // namespace dynamiccl
