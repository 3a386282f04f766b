#include "tuner/search/replay.hpp"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <map>

#include "core/statistics/fast_random.hpp"
#include "tuner/action/spaces.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A sweep with known truth: arm `best` takes 0.6 of the default, all others 1.2.
SampledTask sampled(int log2_size, std::size_t best, double noise, std::uint64_t seed,
                    int launches = 6) {
  SampledTask task;
  task.search.size = Bytes{std::uint64_t{1} << log2_size};
  task.search.task.space = std::make_shared<const ActionSpace>(
      make_space({.backend = Backend::openmpi, .ranks = 2, .size = task.search.size}));
  task.search.task.key = {"", {.bin = {log2_size}, .group_size = 2}};
  task.regime_id = "abcd";
  FastRandom random(seed);
  const std::size_t arms = task.search.task.space->arms().size();
  for (std::size_t a = 0; a < arms; ++a) {
    const double us = a == 0 ? 100 : a == best ? 60 : 120;
    auto& row = task.arm_us.emplace_back();
    for (int i = 0; i < launches; ++i) row.push_back(us * std::exp(noise * random.normal()));
  }
  return task;
}

ReplayOptions options(const std::vector<std::string>& agents) {
  ReplayOptions result;
  result.agents = agents;
  result.seeds = 3;
  return result;
}

}  // namespace

TEST_CASE("the prior alone measures nothing, and the best fixed setting is one for all tasks",
          "[H-23]") {
  std::vector<SampledTask> tasks{sampled(20, 3, 0.01, 1), sampled(22, 3, 0.01, 2),
                                 sampled(24, 5, 0.01, 3)};
  for (SampledTask& task : tasks) {
    task.search.task.prior_log_us.assign(task.arm_us.size(), 1);
    task.search.task.prior_log_us[5] = 0.5;
  }
  ReplayOptions asked = options({"prior"});
  asked.best_fixed = true;
  const auto scores = replay(tasks, asked, nullptr);
  REQUIRE(scores.size() == 2);
  CHECK(scores[0].choices.front() == std::vector<std::size_t>{5, 5, 5});
  CHECK(scores[0].evaluations == Catch::Approx(3));  // the references alone
  CHECK(scores[1].agent == kBestFixed);
  // Arm 3 is 0.6 of the default in two tasks and 1.2 in one, arm 5 the other way round.
  CHECK(scores[1].choices.front() == std::vector<std::size_t>{3, 3, 3});
  CHECK(scores[1].gain_share == Catch::Approx((0.4 + 0.4 - 0.2) / 1.2).margin(0.05));
  CHECK(scores[1].slower == asked.seeds);
  // It rests on as many launches as the oracle's choice does.
  double launches = 0;
  for (const SampledTask& task : tasks)
    for (const auto& arm : task.arm_us) launches += static_cast<double>(arm.size());
  CHECK(scores[1].evaluations == Catch::Approx(launches / 3));
  CHECK(std::isnan(scores[1].reached_95));
}

TEST_CASE("exhaustive finds all that the oracle finds, the default nothing", "[E-136]") {
  const std::vector<SampledTask> tasks{sampled(20, 3, 0.01, 1), sampled(22, 5, 0.01, 2),
                                       sampled(24, 0, 0.01, 3)};
  const auto scores = replay(tasks, options({"default", "exhaustive"}), nullptr);
  REQUIRE(scores.size() == 2);
  CHECK(scores[0].tasks == 2);
  CHECK(scores[0].gain_share == Catch::Approx(0));
  CHECK(scores[0].evaluations == Catch::Approx(3));
  CHECK(scores[1].gain_share == Catch::Approx(1));
  CHECK(scores[1].gain_share_lowest == Catch::Approx(1));
  // The reference is measured apart from exhaustive's own round.
  CHECK(scores[1].share_of_exhaustive >= 1);
  CHECK(scores[1].reached_95 == Catch::Approx(1));
  CHECK(std::isinf(scores[0].evaluations_to_95));
  CHECK(scores[1].evaluations_to_95 <= static_cast<double>(tasks[0].arm_us.size()) + 1);
  CHECK(scores[1].slower == 0);
}

TEST_CASE("a search within its budget never chooses what is slower than the default") {
  std::vector<SampledTask> tasks;
  for (int i = 0; i < 6; ++i) tasks.push_back(sampled(16 + i, 4, 0.03, 10 + i));
  tasks.back().held_out = true;
  int steps = 0;
  auto settings = options({"means", "bandit", "random", "coordinate-descent"});
  settings.evaluations = 36;
  const auto scores = replay(tasks, settings, [&](const ReplayStep& step) {
    ++steps;
    CHECK(step.step->measured.trial.ok);
  });
  for (const ReplayScore& score : scores) {
    CAPTURE(score.agent);
    for (const SeedScore& seed : score.by_seed) CHECK(seed.evaluations <= 36);
    CHECK(score.slower == 0);
    CHECK(score.held_out_tasks == 1);
  }
  CHECK(steps > 0);
  // Sizes share what was learnt: these need not search each from the start.
  CHECK(scores[0].gain_share > scores[2].gain_share);
  CHECK(scores[1].gain_share > scores[2].gain_share);
}

TEST_CASE("failed arms are drawn as failures and too few launches are refused") {
  auto task = sampled(20, 3, 0.01, 1);
  task.arm_us[1].clear();
  bool failed = false;
  replay({task}, options({"exhaustive"}), [&](const ReplayStep& step) {
    if (step.step->choice.arm == 1) failed = !step.step->measured.trial.ok;
  });
  CHECK(failed);
  CHECK_THROWS_WITH(replay({sampled(20, 3, 0, 1, 2)}, options({"default"}), nullptr),
                    ContainsSubstring("at least 3 launches"));
}

TEST_CASE("a search is told which of its measurements one launch made", "[E-136]") {
  auto task = sampled(20, 3, 0.01, 1, 9);
  for (std::size_t a = 0; a < task.arm_us.size(); ++a)
    task.arm_launch.push_back({10, 11, 12, 13, 14, 15, 16, 17, 18});
  std::map<std::size_t, std::vector<std::int64_t>> shown;
  auto settings = options({"exhaustive"});
  settings.seeds = 1;
  const auto scores = replay({task}, settings, [&](const ReplayStep& step) {
    shown[step.step->choice.arm].push_back(step.step->measured.origin.value_or(0));
  });
  // The launches to choose on, each once: what the oracle knows.
  for (std::size_t a = 1; a < task.arm_us.size(); ++a) {
    std::sort(shown[a].begin(), shown[a].end());
    CHECK(shown[a] == std::vector<std::int64_t>{10, 13, 16});
  }
  CHECK(scores[0].share_of_exhaustive >= 1);
}
