#include "core/statistics.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <random>

#include "core/error.hpp"

using namespace dynamiccl;
using Catch::Approx;

TEST_CASE("median and quantiles interpolate between order statistics") {
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

TEST_CASE("rank intervals of the median use the tabulated order statistics") {
  std::vector<double> values;
  for (int i = 1; i <= 10; ++i) values.push_back(i);
  const auto ten = median_rank_interval(values);
  REQUIRE(ten);
  CHECK(ten->low == 2);
  CHECK(ten->high == 9);
  CHECK_FALSE(median_rank_interval({1, 2, 3, 4, 5}));
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
