#include "core/statistics/statistics.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <random>

#include "core/statistics/rank_statistics.hpp"
#include "core/statistics/verdict.hpp"
#include "core/vocabulary/error.hpp"

using namespace dynamiccl;
using Catch::Approx;

TEST_CASE("median and quantiles interpolate between order statistics") {
  CHECK(std::isinf(median({INFINITY, INFINITY})));
  CHECK(std::isinf(median({1, INFINITY})));
  CHECK(median({3, 1, 2}) == Approx(2));
  CHECK(median({4, 1, 2, 3}) == Approx(2.5));
  CHECK(quantile({0, 10}, 0.9) == Approx(9));
  CHECK(std::isnan(median({})));
}

TEST_CASE("quantiles of t and normal match the printed tables") {
  CHECK(student_t_quantile(0.975, 4) == Approx(2.776445).epsilon(1e-5));
  CHECK(student_t_quantile(0.975, 9) == Approx(2.262157).epsilon(1e-5));
  CHECK(student_t_quantile(0.975, 1) == Approx(12.7062).epsilon(1e-5));
  CHECK(normal_quantile(0.975) == Approx(1.959964).epsilon(1e-6));
}

TEST_CASE("rank intervals leave out as many averages as the printed tables say") {
  // Powers of two: all averages of pairs, and all differences, are different.
  std::vector<double> a;
  std::vector<double> b;
  for (int i = 0; i < 10; ++i) {
    a.push_back(std::ldexp(1.0, i));
    b.push_back(-3 * std::ldexp(1.0, i));
  }
  std::vector<double> averages;
  std::vector<double> differences;
  for (std::size_t i = 0; i < 10; ++i) {
    for (std::size_t j = 0; j < 10; ++j) {
      differences.push_back(a[i] - b[j]);
      if (j >= i) averages.push_back((a[i] + a[j]) / 2);
    }
  }
  std::sort(averages.begin(), averages.end());
  std::sort(differences.begin(), differences.end());
  const auto centre = rank_centre(a, 0.95);
  REQUIRE(centre);
  // Signed-rank test, n = 10, 5 % on two sides: critical value 8 (Wilcoxon and Wilcox 1964).
  CHECK(centre->low == averages[8]);
  CHECK(centre->high == averages[55 - 9]);
  CHECK(centre->value == Approx(median(averages)));
  const auto shift = rank_shift(a, b, 0.95);
  REQUIRE(shift);
  // Rank-sum test, 10 and 10: critical value 23 (Mann and Whitney).
  CHECK(shift->low == differences[23]);
  CHECK(shift->high == differences[100 - 24]);
  CHECK_FALSE(rank_centre({1, 2, 3, 4, 5}, 0.95));
  CHECK(rank_centre({1, 2, 3, 4, 5, 6}, 0.95));
  CHECK_FALSE(rank_shift({1, 2, 3}, {1, 2, 3}, 0.95));
  // Exact and normal distributions meet where the one takes over from the other.
  std::vector<double> many(25);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = std::pow(1.1, static_cast<double>(i));
  // n = 25: critical value 89.
  std::vector<double> all;
  for (std::size_t i = 0; i < many.size(); ++i) {
    for (std::size_t j = i; j < many.size(); ++j) all.push_back((many[i] + many[j]) / 2);
  }
  std::sort(all.begin(), all.end());
  CHECK(rank_centre(many, 0.95)->low == Approx(all[89]).epsilon(0.02));
}

TEST_CASE("the median's interval lies between the order statistics that enclose its confidence") {
  const std::vector<double> ten{70, 10, 90, 30, 50, 20, 60, 100, 40, 80};
  // Binomial(10, 1/2): 2nd to 9th hold the median in 97.85 % of samples, 3rd to 8th in 89.06 %.
  const auto of_ten = rank_median(ten, 0.95);
  REQUIRE(of_ten);
  CHECK(of_ten->value == 55);
  CHECK(of_ten->low == Approx(20 + 6.575).epsilon(1e-3));  // Hettmansperger and Sheather's lambda
  CHECK(of_ten->high == Approx(90 - 6.575).epsilon(1e-3));
  CHECK(rank_median(ten, 1 - 2 * 11.0 / 1024)->low == Approx(20));
  CHECK(rank_median(ten, 1 - 2 * 56.0 / 1024)->low == Approx(30));
  CHECK_FALSE(rank_median({1, 2, 3, 4, 5}, 0.95));
  CHECK(rank_median({1, 2, 3, 4, 5, 6}, 0.95));
  CHECK_FALSE(rank_median({}, 0.95));
}

TEST_CASE("launches of two kinds have the median inside their interval, not at its edge") {
  // Six of ten launches on one page colour, four on another: the pseudo-median lies in the gap.
  const auto interval =
      launch_interval({1.00, 1.01, 1.02, 1.03, 1.04, 1.05, 5.00, 5.01, 5.02, 5.03});
  REQUIRE(interval);
  CHECK(interval->method == "order-statistics");
  CHECK(interval->low < 1.02);
  CHECK(interval->high > 5);
  CHECK(launch_interval({1.0, 1.1, 1.2, 1.3})->method == "t-log");
}

TEST_CASE("one or two launches have no interval") {
  CHECK_FALSE(launch_interval({1.0}));
  CHECK_FALSE(launch_interval({1.0, 1.1}));
  CHECK(launch_interval({1.0, 1.1, 1.05}));
}

TEST_CASE("a paired ratio ignores what both launches of a block share") {
  const std::vector<double> slow{110, 220, 330, 440};
  const std::vector<double> fast{100, 200, 300, 400};
  const auto paired = ratio_paired(slow, fast);
  CHECK(paired.value == Approx(1.1));
  REQUIRE(paired.interval);
  CHECK(paired.interval->high - paired.interval->low < 1e-9);
  const auto unpaired = ratio_unpaired(slow, fast);
  CHECK(unpaired.interval->low < 1.0);
  CHECK_THROWS_AS(ratio_paired({1.0}, {1.0, 2.0}), Error);
}

TEST_CASE("percent faster divides by the faster time", "[A-21]") {
  CHECK(percent_faster(3.877, 2.285) == Approx(69.67).epsilon(1e-3));
}

TEST_CASE("one launch gone wrong among five does not move a ratio", "[A-22]") {
  const std::vector<double> base{100, 1000, 101, 99, 100};
  const std::vector<double> other{101, 100, 100, 100, 101};
  for (const auto& ratio : {ratio_paired(other, base), ratio_unpaired(other, base)}) {
    CHECK(ratio.value == Approx(1).margin(0.02));
    REQUIRE(ratio.interval);
    // It still widens what is known.
    CHECK(ratio.interval->low < 0.7);
    CHECK(ratio.interval->high >= ratio.value);
    CHECK(judge(ratio, {0.02}) == Verdict::unclear);
    CHECK(outside_band_probability(ratio, {0.02}) > 0.05);
  }
}
