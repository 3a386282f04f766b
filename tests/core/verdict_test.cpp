#include "core/verdict.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <random>

using namespace dynamiccl;

namespace {
Ratio with_interval(double value, double low, double high) {
  return {value, Interval{low, high, 0.95, "t"}};
}

std::vector<double> launches(std::mt19937_64& random, int count, double centre, double between) {
  std::normal_distribution<double> noise(std::log(centre), between);
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(std::exp(noise(random)));
  return values;
}
}  // namespace

TEST_CASE("a verdict needs the whole interval on one side of the band") {
  const EquivalenceBand band{0.02};
  CHECK(judge(with_interval(1.0, 0.99, 1.01), band) == Verdict::same);
  CHECK(judge(with_interval(1.1, 1.05, 1.15), band) == Verdict::slower);
  CHECK(judge(with_interval(0.9, 0.85, 0.95), band) == Verdict::faster);
  CHECK(judge(with_interval(1.02, 0.99, 1.05), band) == Verdict::unclear);
  CHECK(judge(with_interval(1.025, 1.01, 1.04), band) == Verdict::unclear);
  CHECK(judge({2.0, std::nullopt}, band) == Verdict::unclear);
}

TEST_CASE("a slowdown of 5 % is called SLOWER at ten launches in 95 of 100 experiments") {
  std::mt19937_64 random(11);
  int slower = 0;
  constexpr int experiments = 2000;
  for (int e = 0; e < experiments; ++e) {
    const auto base = launches(random, 10, 100, 0.02);
    const auto slow = launches(random, 10, 105, 0.02);
    slower += judge(ratio_unpaired(slow, base), {0.01}) == Verdict::slower ? 1 : 0;
  }
  CHECK(slower >= 0.95 * experiments);
}

TEST_CASE("equal sides are rarely called different and mostly SAME at forty launches") {
  std::mt19937_64 random(12);
  int different = 0;
  int same = 0;
  constexpr int experiments = 1000;
  for (int e = 0; e < experiments; ++e) {
    const auto a = launches(random, 40, 100, 0.02);
    const auto b = launches(random, 40, 100, 0.02);
    const auto verdict = judge(ratio_unpaired(b, a), {0.02});
    different += verdict == Verdict::faster || verdict == Verdict::slower ? 1 : 0;
    same += verdict == Verdict::same ? 1 : 0;
  }
  CHECK(different <= 0.05 * experiments);
  CHECK(same >= 0.9 * experiments);
}

TEST_CASE("an unclear verdict says how many launches would settle it") {
  const auto more = launches_needed(with_interval(1.0, 0.94, 1.064), {0.02}, 10);
  REQUIRE(more);
  CHECK(*more > 80);
  CHECK(*more < 120);
  CHECK_FALSE(launches_needed({1.0, std::nullopt}, {0.02}, 1));
}

TEST_CASE("launches are looked at in growing batches and stop at the target or the maximum") {
  const StoppingRule rule{0.05, 6, 20};
  std::vector<double> steady{100, 101, 99, 100, 100};
  CHECK_FALSE(should_stop(steady, rule).stop);
  CHECK(should_stop(steady, rule).next_look == 6);
  steady.push_back(100);
  CHECK(should_stop(steady, rule).converged);
  std::vector<double> wild{100, 200, 50, 400, 100, 30};
  const auto looking = should_stop(wild, rule);
  CHECK_FALSE(looking.stop);
  CHECK(looking.next_look == 9);
  while (wild.size() < 20) wild.push_back(wild[wild.size() % 6]);
  const auto end = should_stop(wild, rule);
  CHECK(end.stop);
  CHECK_FALSE(end.converged);
}
