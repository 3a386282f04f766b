#include "core/statistics/independence.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <random>

using dynamiccl::test_independence;

namespace {

/// `cells` series over `launches`: a part all cells of a launch share (correlated by `phi` from
/// launch to launch, drifting by `drift` a launch) and a part of their own.
std::vector<std::vector<double>> launches_of(std::mt19937_64& random, int cells, int launches,
                                             double phi, double drift) {
  std::normal_distribution<double> normal;
  std::vector<double> shared;
  double state = normal(random);
  for (int l = 0; l < launches; ++l) {
    state = phi * state + std::sqrt(1 - phi * phi) * normal(random);
    shared.push_back(0.02 * state + drift * l);
  }
  std::vector<std::vector<double>> series(static_cast<std::size_t>(cells));
  for (auto& one : series) {
    for (const double part : shared) one.push_back(100 * std::exp(part + 0.01 * normal(random)));
  }
  return series;
}

double share_failing(int launches, double phi, double drift) {
  std::mt19937_64 random(3);
  int failing = 0;
  constexpr int experiments = 200;
  for (int e = 0; e < experiments; ++e)
    failing += test_independence(launches_of(random, 6, launches, phi, drift))->p() < 0.05 ? 1 : 0;
  return static_cast<double>(failing) / experiments;
}

}  // namespace

TEST_CASE("independent launches pass, however alike the cells of one launch are") {
  CHECK(share_failing(6, 0, 0) <= 0.09);
  CHECK(share_failing(20, 0, 0) <= 0.09);
}

TEST_CASE("launches that follow each other or drift are found") {
  CHECK(share_failing(20, 0.8, 0) >= 0.6);
  CHECK(share_failing(10, 0, 0.01) >= 0.8);
  CHECK(share_failing(6, 0, 0.03) >= 0.5);
}

TEST_CASE("below six launches no order is unlikely enough") {
  CHECK_FALSE(test_independence({{1, 2, 3, 4, 5}}));
  CHECK_FALSE(test_independence({}));
  const auto test = test_independence({{1, 2, 3, 4, 5, 6}});
  REQUIRE(test);
  CHECK(test->launches == 6);
  CHECK(test->trend > 0.9);
  CHECK(test->p_trend < 0.01);
}

TEST_CASE("cells that never vary say nothing against independence") {
  const auto test = test_independence({{5, 5, 5, 5, 5, 5, 5}});
  REQUIRE(test);
  CHECK(test->p() == 1.0);
}
