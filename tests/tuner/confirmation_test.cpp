#include "tuner/search/confirmation.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "core/statistics/fast_random.hpp"
#include "tuner/action/spaces.hpp"

using namespace dynamiccl;
using Catch::Approx;

namespace {

constexpr int kRounds = 10;
const ConfirmationRule kRule;

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

/// Each arm's first looks, of other launches than those that score.
void confirm_all(FreshTimes& fresh, std::uint64_t seed) {
  const auto defaults = rounds_of(100, 0.01, seed + 50);
  for (const auto& [arm, us] : fresh.arm_us) {
    if (arm == 0) continue;
    const auto again = rounds_of(median(us), 0.01, seed + 60 + arm);
    for (std::size_t i = 0; i < us.size(); ++i)
      fresh.confirming[arm].push_back({us[i] > 0 ? again[i] : NAN, defaults[i]});
  }
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
  confirm_all(fresh, seed);
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
      fresh, kRule);
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

TEST_CASE("a choice that fails, or is not surely faster, stays the default", "[E-150]") {
  FreshTimes fresh = truth(3);
  for (std::size_t i = 0; i < kRounds; ++i) {
    const std::size_t failing = i % 3 == 0 ? 1 : 2;
    fresh.arm_us[failing][i] = NAN;
    fresh.confirming[failing][i].chosen_us = NAN;
  }
  const std::vector<Oracle> oracles{{1, true}};
  const auto scores = score_confirmed({task_of(false)}, oracles,
                                      {chosen("bandit", {{1}, {2}, {4}, {0}})}, {fresh}, kRule);
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
      score_confirmed({task_of(false)}, oracles, {chosen("bandit", {{5}, {3}})}, {fresh}, kRule);
  CHECK(scores[0].unconfirmed_slower == 1);
}

namespace {

/// Rounds until nothing is open, of arms that take `ratio` of their default's time.
std::map<Ask, std::vector<PairedTime>> confirmed_rounds(const std::map<Ask, double>& ratios,
                                                        double noise, std::uint64_t seed) {
  std::vector<Ask> choices;
  for (const auto& [ask, ratio] : ratios) choices.push_back(ask);
  Confirmations confirming(choices, kRule);
  FastRandom random(seed);
  for (auto asks = confirming.round(); !asks.empty(); asks = confirming.round()) {
    std::vector<Measured> measured;
    for (const Ask& ask : asks) {
      Measured one;
      one.trial = {true, Micros{100 * (ask.arm == 0 ? 1 : ratios.at(ask)) *
                                std::exp(noise * random.normal())}};
      measured.push_back(one);
    }
    confirming.add(asks, measured);
  }
  return confirming.times();
}

}  // namespace

TEST_CASE("what ten launches leave open gets as many again, three times at most", "[E-136]") {
  const Ask fast{0, 1};
  const Ask equal{0, 2};
  const Ask slow{1, 3};
  const Ask hidden{1, 4};  // faster by 8 %, under noise of 10 %
  int confirmed = 0;
  std::size_t launches = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const auto times =
        confirmed_rounds({{fast, 0.5}, {equal, 1}, {slow, 1.5}, {hidden, 0.92}}, 0.1, seed);
    CHECK(times.at(fast).size() == 10);
    CHECK(times.at(slow).size() == 10);
    CHECK(is_confirmed(times.at(fast), kRule));
    CHECK_FALSE(is_confirmed(times.at(slow), kRule));
    CHECK(times.at(hidden).size() % 10 == 0);
    CHECK(times.at(hidden).size() <= 40);
    confirmed += is_confirmed(times.at(hidden), kRule) ? 1 : 0;
    launches += times.at(hidden).size();
  }
  // Ten launches alone find it in a quarter of the cases.
  CHECK(confirmed > 75);
  CHECK(launches < 4000);
}

TEST_CASE("four looks keep what is as fast as its default in 1 of 40 cases", "[E-136]") {
  std::map<Ask, double> equal;
  for (std::size_t t = 0; t < 2000; ++t) equal[{t, 1}] = 1;
  int kept = 0;
  for (const auto& [ask, rounds] : confirmed_rounds(equal, 0.1, 1))
    kept += is_confirmed(rounds, kRule) ? 1 : 0;
  CHECK(kept < 2000 / 40 * 1.4);  // 50 expected, 70 is three standard deviations above
  CHECK(kept > 10);
}

TEST_CASE("what the rule has confirmed is FASTER, by however little, cut off or not", "[E-136]") {
  const ConfirmationRule rule{3, 3, 0.982, 0.02};
  const auto pairs = [](const std::vector<double>& chosen) {
    std::vector<PairedTime> rounds;
    for (const double us : chosen) rounds.push_back({us, 100});
    return rounds;
  };
  // Below 1 for sure, and not by the whole band: the search ends there, and keeps it.
  const auto little = pairs({97.0, 97.1, 96.9, 97.6, 96.4, 97.0});
  const auto ratio = ratio_of(little, rule.confidence);
  REQUIRE((ratio && ratio->interval && ratio->interval->high < 1));
  CHECK(confirmed_verdict(little, rule, false) == Verdict::faster);
  CHECK(confirmed_verdict(pairs({98.2, 99.2, 98.7}), rule, false) != Verdict::slower);
  // What was cut off between two looks is looked at once more, from the first look's pairs on.
  CHECK(confirmed_verdict(pairs({50, 50, 90}), rule, true) == Verdict::unclear);
  CHECK(confirmed_verdict(pairs({50, 51, 60, 50, 51}), rule, true) == Verdict::faster);
  CHECK(confirmed_verdict(pairs({50, 51, 50}), {6, 3, 0.982, 0.02}, true) == Verdict::unclear);
  // Who cut them off may have chosen the moment: more is asked for than of a look.
  const auto chosen = pairs({50, 51, 95, 50, 51});
  REQUIRE(is_confirmed(chosen, rule));
  CHECK(deciding_confidence(chosen, rule, false) == rule.confidence);
  CHECK(ratio_of(chosen, deciding_confidence(chosen, rule, true))->interval->high > 1);
  CHECK(confirmed_verdict(chosen, rule, true) == Verdict::unclear);
  // Whatever else it says stays unsaid then.
  CHECK(confirmed_verdict(pairs({150, 151, 150}), rule, false) == Verdict::slower);
  CHECK(confirmed_verdict(pairs({150, 151, 150}), rule, true) == Verdict::unclear);
  CHECK(confirmed_verdict(pairs({NAN, NAN, NAN}), rule, false) == Verdict::unclear);
}

TEST_CASE("a choice that hardly ever works is not measured on") {
  Confirmations confirming({{0, 1}}, kRule);
  for (int round = 0; round < 10; ++round) {
    const auto asks = confirming.round();
    REQUIRE(asks == std::vector<Ask>{{0, 0}, {0, 1}});
    Measured works;
    works.trial = {true, Micros{100}};
    Measured fails;
    fails.trial.ok = round < 4;
    fails.trial.time = Micros{50};
    confirming.add(asks, {works, fails});
  }
  CHECK(confirming.round().empty());
  CHECK_FALSE(is_confirmed(confirming.times().at({0, 1}), kRule));
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
