#include "tuner/search/confirmation.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "tuner/action/spaces.hpp"
#include "tuner/simulator/fast_random.hpp"

using namespace dynamiccl;
using Catch::Approx;

namespace {

constexpr int kRounds = 20;

std::vector<double> rounds_of(double us, double noise, std::uint64_t seed) {
  FastRandom random(seed);
  std::vector<double> times;
  for (int i = 0; i < kRounds; ++i) times.push_back(us * std::exp(noise * random.normal()));
  return times;
}

SampledTask task_of(bool held_out) {
  SampledTask task;
  task.held_out = held_out;
  return task;
}

/// Default 100 us, arm 1 half of it, arm 2 four fifths, arm 3 slower, arm 4 as long.
FreshTimes truth(std::uint64_t seed) {
  FreshTimes fresh;
  fresh.arm_us[0] = rounds_of(100, 0.01, seed);
  fresh.arm_us[1] = rounds_of(50, 0.01, seed + 1);
  fresh.arm_us[2] = rounds_of(80, 0.01, seed + 2);
  fresh.arm_us[3] = rounds_of(120, 0.01, seed + 3);
  fresh.arm_us[4] = rounds_of(100, 0.01, seed + 4);
  fresh.again_us = rounds_of(100, 0.01, seed + 5);
  return fresh;
}

ReplayScore chosen(const std::string& agent, std::vector<std::vector<std::size_t>> choices) {
  ReplayScore score;
  score.agent = agent;
  score.choices = std::move(choices);
  return score;
}

}  // namespace

TEST_CASE("fresh launches score choices, and those that they do not confirm are taken back",
          "[E-136]") {
  const std::vector<SampledTask> tasks{task_of(false), task_of(true), task_of(false)};
  const std::vector<Oracle> oracles{{1, true}, {2, true}, {0, false}};
  const std::vector<FreshTimes> fresh{truth(1), truth(10), truth(20)};
  // Two seeds: the oracle's own choices with a slow one beside; half of it with an equal one.
  const auto scores = score_confirmed(
      tasks, oracles,
      {chosen("ppo", {{1, 2, 3}, {2, 3, 4}}), chosen("coordinate-descent", {{2, 2, 0}, {1, 2, 0}})},
      fresh);
  REQUIRE(scores.size() == 2);
  const ConfirmedScore& ppo = scores[0];
  CHECK(ppo.agent == "ppo");
  CHECK(ppo.tasks == 2);
  CHECK(ppo.held_out_tasks == 1);
  CHECK(ppo.choices == 6);
  CHECK(ppo.kept == 3);
  CHECK(ppo.slower == 0);
  CHECK(ppo.unconfirmed_slower == 2);
  CHECK(ppo.oracle_saves == Approx(0.35).margin(0.01));
  CHECK(ppo.gain_share == Approx((1.0 + 0.2 / 0.7) / 2).margin(0.02));
  CHECK(ppo.gain_share_lowest == Approx(0.2 / 0.7).margin(0.02));
  CHECK(ppo.held_out_gain_share == Approx(0.5).margin(0.02));
  CHECK(ppo.unconfirmed_gain_share == Approx((1.0 + 0.0) / 2).margin(0.02));
  // Seed 0: faster on the first task. Seed 1: slower on the first and on the second.
  CHECK(ppo.faster_than_descent == 1);
  CHECK(ppo.slower_than_descent == 2);
  CHECK(scores[1].faster_than_descent == 0);
}

TEST_CASE("a choice that fails, or is not surely faster, stays the default") {
  FreshTimes fresh = truth(3);
  for (int i = 0; i < kRounds; i += 3) fresh.arm_us[1][static_cast<std::size_t>(i)] = NAN;
  for (int i = 0; i < kRounds; ++i)
    if (i % 3 != 0) fresh.arm_us[2][static_cast<std::size_t>(i)] = NAN;
  const std::vector<Oracle> oracles{{1, true}};
  const auto scores =
      score_confirmed({task_of(false)}, oracles, {chosen("bandit", {{1}, {2}, {4}, {0}})}, {fresh});
  CHECK(scores[0].choices == 3);
  CHECK(scores[0].kept == 1);  // works in two launches of three, and is faster then
  CHECK(scores[0].gain_share == Approx(0.25).margin(0.01));
  // Without confirmation the one that hardly works would count as slower.
  CHECK(scores[0].unconfirmed_slower == 1);
  CHECK(scores[0].slower == 0);
}

TEST_CASE("what is not slower than the default against itself is not slower") {
  // The default again takes 6 % longer: what is 5 % slower is within that band, 20 % is not.
  FreshTimes fresh = truth(4);
  fresh.again_us = rounds_of(106, 0.005, 9);
  fresh.arm_us[5] = rounds_of(105, 0.005, 8);
  const std::vector<Oracle> oracles{{1, true}};
  const auto scores =
      score_confirmed({task_of(false)}, oracles, {chosen("bandit", {{5}, {3}})}, {fresh});
  CHECK(scores[0].unconfirmed_slower == 1);
}

TEST_CASE("halves of a sweep: choices come from the first, what counts from the second",
          "[E-136]") {
  SampledTask task;
  task.search.size = Bytes{std::uint64_t{1} << 20};
  task.search.task.space = std::make_shared<const ActionSpace>(
      make_space({.backend = Backend::openmpi, .ranks = 2, .size = task.search.size}));
  task.search.task.key = {"", {.bin = {20}, .group_size = 2}};
  task.regime_id = "abcd";
  for (std::size_t a = 0; a < task.search.task.space->arms().size(); ++a)
    task.arm_us.push_back({100, 100, 100, 100});
  // Faster in the launches that searches see, not in the others; arm 2 the other way round.
  task.arm_us[1] = {50, 100, 50, 100};
  task.arm_us[2] = {100, 50, 100, 50};
  ReplayOptions options;
  options.agents = {"exhaustive"};
  options.seeds = 2;
  options.parts = 2;
  const auto best = oracles({task}, options);
  REQUIRE(best.size() == 1);
  CHECK(best[0].arm == 1);
  CHECK_FALSE(best[0].counts);
  const auto scores = replay({task}, options, nullptr);
  REQUIRE(scores[0].choices.size() == 2);
  CHECK(scores[0].choices[0] == std::vector<std::size_t>{1});
  task.arm_us[1] = {50, 50, 50, 50};
  CHECK(oracles({task}, options)[0].counts);
}
