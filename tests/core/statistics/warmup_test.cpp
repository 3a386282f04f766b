#include "core/statistics/warmup.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <random>

using dynamiccl::settled_after;

namespace {

/// Log-normal times around 100 us, neighbours correlated by `phi`, 1 % spikes.
std::vector<double> iterations(std::mt19937_64& random, int n, double phi) {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  std::vector<double> values;
  double state = normal(random);
  for (int i = 0; i < n; ++i) {
    state = phi * state + std::sqrt(1 - phi * phi) * normal(random);
    values.push_back(100 * std::exp(0.05 * state) * (uniform(random) < 0.01 ? 5 : 1));
  }
  return values;
}

int found_among(int experiments, int n, double phi, double head_factor, int head) {
  std::mt19937_64 random(7);
  int found = 0;
  for (int e = 0; e < experiments; ++e) {
    auto values = iterations(random, n, phi);
    for (int i = 0; i < head; ++i) values[static_cast<std::size_t>(i)] *= head_factor;
    found += settled_after(values).value() > 0 ? 1 : 0;
  }
  return found;
}

}  // namespace

TEST_CASE("a warm-up that was too short is found, and where it ends") {
  std::mt19937_64 random(1);
  for (const int head : {5, 12, 30}) {
    CHECK(found_among(200, 100, 0.0, 1.5, head) >= 195);
    auto values = iterations(random, 100, 0.0);
    for (int i = 0; i < head; ++i) values[static_cast<std::size_t>(i)] *= 1.5;
    const auto settled = settled_after(values).value();
    CHECK(settled >= static_cast<std::size_t>(head) - 3);
    CHECK(settled <= static_cast<std::size_t>(head) + 6);
  }
}

TEST_CASE("iterations without a start are seldom said to have one, correlated ones too") {
  CHECK(found_among(1000, 100, 0.0, 1, 0) <= 20);
  CHECK(found_among(1000, 25, 0.0, 1, 0) <= 20);
  CHECK(found_among(1000, 1000, 0.0, 1, 0) <= 20);
  CHECK(found_among(1000, 100, 0.6, 1, 0) <= 100);
}

TEST_CASE("a start that no median would notice is not reported") {
  std::vector<double> values(100, 100.0);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += static_cast<double>(i % 7) * 0.1;
  for (std::size_t i = 0; i < 20; ++i) values[i] += 1.0;
  CHECK(settled_after(values).value() == 0);
}

TEST_CASE("too few iterations tell nothing") {
  CHECK_FALSE(settled_after(std::vector<double>(19, 1.0)));
  CHECK(settled_after(std::vector<double>(20, 1.0)).value() == 0);
}
