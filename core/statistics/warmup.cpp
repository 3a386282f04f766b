#include "core/statistics/warmup.hpp"

#include <algorithm>
#include <cmath>

#include "core/statistics/statistics.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kMostBatches = 40;
/// Largest |Z| over the splits of 20 to 40 independent batches exceeds it in about 1 % of series
/// (simulated; tests/core/statistics/warmup_test.cpp holds it to that).
constexpr double kCritical = 3.4;
constexpr std::size_t kLeadingRun = 4;
constexpr double kSmallestEffect = 0.02;

std::vector<double> batch_medians(const std::vector<double>& values, std::size_t batch) {
  std::vector<double> medians;
  for (std::size_t from = 0; from + batch <= values.size(); from += batch) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(from);
    medians.push_back(median({begin, begin + static_cast<std::ptrdiff_t>(batch)}));
  }
  return medians;
}

/// Do the first `split` values lie apart from the others by more than noise and 2 %?
bool matters(const std::vector<double>& values, std::size_t split) {
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(split);
  const double before = median({values.begin(), place});
  const std::vector<double> rest(place, values.end());
  const double after = median(rest);
  return std::fabs(before - after) >
         std::max(kSmallestEffect * after, median_absolute_deviation(rest));
}

/// Split of the first half whose two sides differ most in rank (Mann-Whitney, standardised; Pettitt
/// 1979 takes the largest without standardising, which hides early changes); 0 = none is beyond
/// chance.
std::size_t change_point(const std::vector<double>& x) {
  const std::size_t m = x.size();
  double u = 0;
  double largest = 0;
  std::size_t best = 0;
  for (std::size_t t = 0; t < m / 2; ++t) {
    for (std::size_t j = 0; j < m; ++j) u += x[t] > x[j] ? 1 : x[t] < x[j] ? -1 : 0;
    const auto left = static_cast<double>(t + 1);
    const auto all = static_cast<double>(m);
    const double z = std::fabs(u) / std::sqrt(left * (all - left) * (all + 1) / 3);
    if (z <= largest) continue;
    largest = z;
    best = t + 1;
  }
  return largest > kCritical ? best : 0;
}

std::size_t leading_run(const std::vector<double>& values) {
  const auto half = static_cast<std::ptrdiff_t>(values.size() / 2);
  const double limit = quantile({values.begin() + half, values.end()}, 0.9);
  const auto end = std::find_if(values.begin(), values.begin() + half,
                                [&](double value) { return value <= limit; });
  const auto run = static_cast<std::size_t>(end - values.begin());
  return run >= kLeadingRun ? run : 0;
}

}  // namespace

std::optional<std::size_t> settled_after(const std::vector<double>& values) {
  if (values.size() < kFewestIterationsToTell) return std::nullopt;
  const std::size_t batch = (values.size() + kMostBatches - 1) / kMostBatches;
  // Single iterations are correlated; batches of at least two are less so.
  const std::size_t width =
      std::max<std::size_t>(batch, values.size() >= 2 * kFewestIterationsToTell ? 2 : 1);
  std::size_t settled = 0;
  for (const std::size_t candidate :
       {leading_run(values), width * change_point(batch_medians(values, width))}) {
    if (candidate > settled && matters(values, candidate)) settled = candidate;
  }
  return settled;
}

}  // namespace dynamiccl
