#include "core/statistics/rank_statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <tuple>

#include "core/statistics/descriptive.hpp"

namespace dynamiccl {
namespace {

/// Above this many values a normal distribution stands for the exact one.
constexpr std::size_t kMostExact = 24;

/// Ways to reach each sum of a subset of `ranks`, as shares of all ways.
std::vector<double> signed_rank_shares(std::size_t n) {
  std::vector<double> shares(n * (n + 1) / 2 + 1, 0.0);
  shares[0] = 1;
  std::size_t reached = 0;
  for (std::size_t rank = 1; rank <= n; ++rank) {
    reached += rank;
    for (std::size_t sum = reached; sum >= rank; --sum)
      shares[sum] = (shares[sum] + shares[sum - rank]) / 2;
    for (std::size_t sum = 0; sum < rank; ++sum) shares[sum] /= 2;
  }
  return shares;
}

/// Shares of each count of pairs in which the first sample's value is the larger one.
std::vector<double> rank_sum_shares(std::size_t m, std::size_t n) {
  // p(i, j, u): i and j values of each; the largest of all is of the first sample with i/(i+j).
  std::vector<std::vector<double>> row(n + 1, std::vector<double>(m * n + 1, 0.0));
  for (auto& shares : row) shares[0] = 1;
  for (std::size_t i = 1; i <= m; ++i) {
    // row[0] stays: without values of the second sample there are no pairs.
    for (std::size_t j = 1; j <= n; ++j) {
      const double first = static_cast<double>(i) / static_cast<double>(i + j);
      std::vector<double> shares(m * n + 1, 0.0);
      for (std::size_t u = 0; u <= i * j; ++u) {
        shares[u] = (u >= j ? first * row[j][u - j] : 0.0) + (1 - first) * row[j - 1][u];
      }
      row[j] = std::move(shares);
    }
  }
  return row[n];
}

/// How many of the smallest (and of the largest) values lie outside the interval; at least 1, or 0
/// where not even all of them reach the confidence.
std::size_t left_out(const std::vector<double>& shares, double confidence) {
  double below = 0;
  std::size_t k = 0;
  while (k < shares.size() && below + shares[k] <= (1 - confidence) / 2) below += shares[k++];
  return k;
}

std::size_t left_out_of_normal(double mean, double variance, double confidence) {
  const double k =
      std::floor(mean + 0.5 - normal_quantile(0.5 + confidence / 2) * std::sqrt(variance));
  return k < 1 ? 0 : static_cast<std::size_t>(k);
}

std::size_t signed_rank_left_out(std::size_t n, double confidence) {
  thread_local std::map<std::tuple<std::size_t, double>, std::size_t> known;
  const auto [entry, is_new] = known.try_emplace({n, confidence}, 0);
  if (!is_new) return entry->second;
  const auto count = static_cast<double>(n);
  entry->second = n <= kMostExact
                      ? left_out(signed_rank_shares(n), confidence)
                      : left_out_of_normal(count * (count + 1) / 4,
                                           count * (count + 1) * (2 * count + 1) / 24, confidence);
  return entry->second;
}

std::size_t rank_sum_left_out(std::size_t m, std::size_t n, double confidence) {
  thread_local std::map<std::tuple<std::size_t, std::size_t, double>, std::size_t> known;
  const auto [entry, is_new] = known.try_emplace({m, n, confidence}, 0);
  if (!is_new) return entry->second;
  const auto a = static_cast<double>(m);
  const auto b = static_cast<double>(n);
  entry->second = std::max(m, n) <= kMostExact
                      ? left_out(rank_sum_shares(m, n), confidence)
                      : left_out_of_normal(a * b / 2, a * b * (a + b + 1) / 12, confidence);
  return entry->second;
}

std::optional<RankEstimate> estimate(std::vector<double> values, std::size_t out) {
  if (out == 0 || 2 * out > values.size()) return std::nullopt;
  std::sort(values.begin(), values.end());
  return RankEstimate{median(values), values[out - 1], values[values.size() - out]};
}

}  // namespace

std::optional<RankEstimate> rank_centre(const std::vector<double>& values, double confidence) {
  const std::size_t n = values.size();
  if (n < 2) return std::nullopt;
  std::vector<double> averages;
  averages.reserve(n * (n + 1) / 2);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = i; j < n; ++j) averages.push_back((values[i] + values[j]) / 2);
  }
  return estimate(std::move(averages), signed_rank_left_out(n, confidence));
}

std::optional<RankEstimate> rank_median(std::vector<double> values, double confidence) {
  const std::size_t n = values.size();
  const auto count = static_cast<double>(n);
  // The k-th smallest and k-th largest enclose the median unless fewer than k of n fair coins fall
  // on one side.
  const auto share = [&](std::size_t k) {
    const auto i = static_cast<double>(k);
    return std::exp(std::lgamma(count + 1) - std::lgamma(i + 1) - std::lgamma(count - i + 1) -
                    count * std::log(2.0));
  };
  std::size_t k = 1;
  double wider = n == 0 ? 0 : 1 - 2 * share(0);
  if (wider < confidence) return std::nullopt;
  double narrower = wider - 2 * share(1);
  while (narrower >= confidence) {
    wider = narrower;
    ++k;
    narrower = wider - 2 * share(k);
  }
  std::sort(values.begin(), values.end());
  const double rest = (wider - confidence) / (wider - narrower);
  const auto place = static_cast<double>(k);
  const double inwards = (count - place) * rest / (place + (count - 2 * place) * rest);
  const auto towards = [&](double from, double to) { return from + inwards * (to - from); };
  return RankEstimate{median(values), towards(values[k - 1], values[k]),
                      towards(values[n - k], values[n - k - 1])};
}

std::optional<RankEstimate> rank_shift(const std::vector<double>& other,
                                       const std::vector<double>& base, double confidence) {
  if (other.empty() || base.empty()) return std::nullopt;
  std::vector<double> differences;
  differences.reserve(other.size() * base.size());
  for (const double a : other) {
    for (const double b : base) differences.push_back(a - b);
  }
  return estimate(std::move(differences), rank_sum_left_out(other.size(), base.size(), confidence));
}

}  // namespace dynamiccl
