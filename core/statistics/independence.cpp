#include "core/statistics/independence.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "core/statistics/statistics.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/splitmix64.hpp"

namespace dynamiccl {
namespace {

constexpr int kRandomOrders = 5000;

/// What both statistics need of the cells: products of standardised launches, and their sums.
struct Launches {
  std::size_t n = 0;
  std::vector<double> products;  ///< n x n, mean over cells
  std::vector<double> sums;      ///< per launch, mean over cells
};

std::vector<double> standardised_logs(const std::vector<double>& medians) {
  std::vector<double> logs;
  for (const double value : medians) logs.push_back(std::log(value));
  const double centre = mean(logs);
  const double scale = standard_deviation(logs) * std::sqrt(static_cast<double>(logs.size() - 1));
  if (!(scale > 0)) return {};
  for (double& value : logs) value = (value - centre) / scale;
  return logs;
}

Launches gather(const std::vector<std::vector<double>>& series) {
  Launches launches;
  launches.n = series.front().size();
  launches.products.assign(launches.n * launches.n, 0);
  launches.sums.assign(launches.n, 0);
  double cells = 0;
  for (const auto& medians : series) {
    DYN_ASSERT(medians.size() == launches.n, "the series of a group have one length");
    const auto z = standardised_logs(medians);
    if (z.empty()) continue;
    ++cells;
    for (std::size_t i = 0; i < launches.n; ++i) {
      launches.sums[i] += z[i];
      for (std::size_t j = 0; j < launches.n; ++j)
        launches.products[i * launches.n + j] += z[i] * z[j];
    }
  }
  for (auto* values : {&launches.products, &launches.sums}) {
    for (double& value : *values) value /= std::max(cells, 1.0);
  }
  return launches;
}

double lag1_of(const Launches& launches, const std::vector<std::size_t>& order) {
  double sum = 0;
  for (std::size_t i = 1; i < order.size(); ++i)
    sum += launches.products[order[i] * launches.n + order[i - 1]];
  return sum;
}

double trend_of(const Launches& launches, const std::vector<std::size_t>& order) {
  const double centre = static_cast<double>(launches.n - 1) / 2;
  double sum = 0;
  double squares = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const double place = static_cast<double>(i) - centre;
    sum += place * launches.sums[order[i]];
    squares += place * place;
  }
  return sum / std::sqrt(squares);
}

/// Counts the orders that are as extreme as the one seen.
class Extremes {
 public:
  Extremes(double lag1, double trend, std::size_t n)
      : centre_(-1.0 / static_cast<double>(n)), lag1_(lag1), trend_(trend) {}
  void add(double lag1, double trend) {
    // Sums in another order round otherwise: the order itself must count as extreme as itself.
    constexpr double slack = 1e-9;
    ++orders_;
    lag1_hits_ += std::fabs(lag1 - centre_) >= std::fabs(lag1_ - centre_) - slack ? 1 : 0;
    trend_hits_ += std::fabs(trend) >= std::fabs(trend_) - slack ? 1 : 0;
  }
  [[nodiscard]] double p_lag1() const { return lag1_hits_ / orders_; }
  [[nodiscard]] double p_trend() const { return trend_hits_ / orders_; }

 private:
  double centre_;  ///< mean of the lag-1 sum over all orders
  double lag1_;
  double trend_;
  double orders_ = 0;
  double lag1_hits_ = 0;
  double trend_hits_ = 0;
};

void shuffle(std::vector<std::size_t>& order, std::uint64_t& state) {
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[splitmix64_next(state) % i]);
}

}  // namespace

double IndependenceTest::p() const { return std::min(1.0, 2 * std::min(p_lag1, p_trend)); }

std::optional<IndependenceTest> test_independence(const std::vector<std::vector<double>>& series) {
  if (series.empty() || series.front().size() < kFewestLaunchesToTest) return std::nullopt;
  const Launches launches = gather(series);
  std::vector<std::size_t> order(launches.n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  IndependenceTest test;
  test.launches = static_cast<int>(launches.n);
  test.lag1 = lag1_of(launches, order);
  test.trend = trend_of(launches, order);
  Extremes extremes(test.lag1, test.trend, launches.n);
  if (launches.n <= kFewestLaunchesToTest) {
    do {
      extremes.add(lag1_of(launches, order), trend_of(launches, order));
    } while (std::next_permutation(order.begin(), order.end()));
  } else {
    // The order seen is one of those it is compared with.
    extremes.add(test.lag1, test.trend);
    std::uint64_t state = 1;
    for (int i = 0; i < kRandomOrders; ++i) {
      shuffle(order, state);
      extremes.add(lag1_of(launches, order), trend_of(launches, order));
    }
  }
  test.p_lag1 = extremes.p_lag1();
  test.p_trend = extremes.p_trend();
  return test;
}

}  // namespace dynamiccl
