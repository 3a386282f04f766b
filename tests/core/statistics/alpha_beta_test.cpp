#include "core/statistics/alpha_beta.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <random>

using namespace dynamiccl;
using Catch::Approx;

TEST_CASE("a line is found again, small sizes counting like large ones") {
  std::vector<TimedSize> points;
  for (std::uint64_t size = 4; size <= (1U << 28); size *= 8) {
    points.push_back({Bytes(size), Micros(10.0 + 1e-3 * static_cast<double>(size))});
  }
  const auto line = fit_alpha_beta(points);
  REQUIRE(line);
  CHECK(line->alpha.count() == Approx(10.0).epsilon(1e-6));
  CHECK(line->beta_us_per_byte == Approx(1e-3).epsilon(1e-6));
  CHECK(line->relative_error < 1e-6);
  CHECK(line->at(Bytes(1000)).count() == Approx(11.0));
}

TEST_CASE("parameters never go below zero") {
  const auto line = fit_alpha_beta({{Bytes(1000), Micros(1)}, {Bytes(2000), Micros(4)}});
  REQUIRE(line);
  CHECK(line->alpha.count() >= 0);
  CHECK(line->beta_us_per_byte > 0);
}

TEST_CASE("one size has no line") {
  CHECK_FALSE(fit_alpha_beta({{Bytes(8), Micros(1)}, {Bytes(8), Micros(2)}}));
  CHECK_FALSE(fit_piecewise({}));
}

TEST_CASE("a protocol switch makes a second piece, noise does not") {
  std::mt19937_64 random(3);
  std::normal_distribution<double> noise(1.0, 0.02);
  std::vector<TimedSize> broken;
  std::vector<TimedSize> straight;
  for (std::uint64_t size = 1024; size <= (1U << 26); size *= 2) {
    const double m = static_cast<double>(size);
    const double fast = 5.0 + 1e-4 * m;
    const double slow = 200.0 + 1e-3 * m;
    broken.push_back({Bytes(size), Micros((size < 65536 ? fast : slow) * noise(random))});
    straight.push_back({Bytes(size), Micros(fast * noise(random))});
  }
  const auto two = fit_piecewise(broken);
  REQUIRE(two);
  REQUIRE(two->pieces.size() == 2);
  CHECK(two->pieces[1].from.count() == 65536);
  CHECK(two->relative_error < 0.04);
  CHECK(fit_piecewise(straight)->pieces.size() == 1);
}
