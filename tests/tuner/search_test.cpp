#include "tuner/search/search.hpp"

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <set>

#include "core/statistics/saturation.hpp"
#include "tuner/action/spaces.hpp"
#include "tuner/state/state_from_regime.hpp"

using namespace dynamiccl;

namespace {

SearchTask make_task(int log2_size) {
  SearchTask task;
  task.size = Bytes{std::uint64_t{1} << log2_size};
  task.task.space = std::make_shared<const ActionSpace>(
      make_space({.backend = Backend::openmpi, .ranks = 4, .size = task.size}));
  task.task.key = {"", {.bin = SizeBin::of(task.size), .group_size = 4}};
  return task;
}

/// Times that a test chooses; everything else as a launch would say it.
struct FakeWorld {
  std::map<Ask, double> us;
  double otherwise = 10;
  std::set<Ask> failing;
  std::set<Ask> missing;  ///< what they are to reach
  nlohmann::json regime = {{"ingredients", {{"intra_link", "shm"}, {"library", "openmpi-4.1"}}}};
  int rounds = 0;

  Evaluate evaluate() {
    return [this](const std::vector<Ask>& asks) {
      ++rounds;
      std::vector<Measured> results;
      for (const Ask& ask : asks) {
        Measured measured;
        measured.missed = missing.contains(ask);
        measured.trial.ok = !failing.contains(ask) && !measured.missed;
        const auto known = us.find(ask);
        measured.trial.time = Micros{known == us.end() ? otherwise : known->second};
        measured.regime_id = "abcd";
        measured.regime = regime;
        results.push_back(measured);
      }
      return results;
    };
  }
};

std::unique_ptr<Agent> exhaustive() { return make_agent("exhaustive", {}); }

}  // namespace

TEST_CASE("whose calls a task's are is still known after its first measurement", "[E-174]") {
  FakeWorld world;
  std::vector<SearchTask> tasks{make_task(20)};
  tasks[0].task.state.parallelism = ParallelismMode::tp;
  std::size_t told = 0;
  const auto agent = exhaustive();
  search(*agent, tasks, world.evaluate(), {}, [&](const SearchStep& step) {
    CHECK(step.state.parallelism == ParallelismMode::tp);
    ++told;
  });
  CHECK(told == tasks[0].task.space->arms().size());
  CHECK(tasks[0].task.state.parallelism == ParallelismMode::tp);
  CHECK(tasks[0].task.state.intra_link == IntraLink::shm);
}

TEST_CASE("a search measures the default first and leaves the best setting") {
  FakeWorld world;
  world.us[{0, 3}] = 5;
  std::vector<SearchTask> tasks{make_task(20), make_task(22)};
  std::vector<SearchStep> steps;
  const auto agent = exhaustive();
  const auto outcomes = search(*agent, tasks, world.evaluate(), {},
                               [&](const SearchStep& step) { steps.push_back(step); });
  REQUIRE(outcomes.size() == 2);
  CHECK(outcomes[0].arm == 3);
  CHECK(outcomes[0].best_time == Micros{5});
  CHECK(outcomes[0].default_time == Micros{10});
  CHECK(outcomes[1].arm == 0);
  CHECK(std::string(steps.front().kind) == "reference");
  CHECK(tasks[0].task.key.regime == "abcd");
  CHECK(tasks[0].task.state.intra_link == IntraLink::shm);
  // One launch serves one arm of every task.
  CHECK(world.rounds <= static_cast<int>(tasks[1].task.space->arms().size()) + 1);
  for (const SearchStep& step : steps) {
    REQUIRE(step.reward);
    CHECK(step.reward->total() < 0);
    CHECK(step.reward->total() >= RewardTerms::lower_bound({}));
  }
}

TEST_CASE("a budget counts over all tasks") {
  FakeWorld world;
  std::vector<SearchTask> tasks{make_task(20), make_task(22), make_task(24)};
  SearchOptions options;
  options.max_evaluations = 11;
  options.in_flight = 2;
  int evaluations = 0;
  const auto agent = exhaustive();
  search(*agent, tasks, world.evaluate(), options, [&](const SearchStep&) { ++evaluations; });
  CHECK(evaluations == 11);
}

TEST_CASE("in-network aggregation and foreign libraries are left alone") {
  for (const auto& [regime, guard] :
       {std::pair{nlohmann::json{{"features", {{"is_ina_active", true}}}},
                  GuardVerdict::ina_passthrough},
        std::pair{nlohmann::json{{"ingredients", {{"library", "rccl-2.18"}}}},
                  GuardVerdict::no_actuator}}) {
    FakeWorld world;
    world.regime = regime;
    world.us[{0, 3}] = 1;
    std::vector<SearchTask> tasks{make_task(20)};
    const auto agent = exhaustive();
    const auto outcomes = search(*agent, tasks, world.evaluate(), {}, nullptr);
    CHECK(outcomes[0].arm == 0);
    CHECK(outcomes[0].evaluations == 1);
    CHECK(outcomes[0].guard == guard);
  }
}

TEST_CASE("a task whose only arm is the default passes through where switches sum", "[E-144]") {
  // An agent that plans measures no task without a choice.
  for (const char* name : {"exhaustive", "bandit"}) {
    FakeWorld world;
    world.regime = {{"features", {{"is_ina_active", true}}}};
    std::vector<SearchTask> tasks{make_task(20)};
    tasks[0].task.space = std::make_shared<const ActionSpace>(
        make_space({.backend = Backend::gloo, .ina_active = true}));
    tasks[0].task.state.ina_active = true;
    const auto agent = make_agent(name, {});
    const auto outcomes = search(*agent, tasks, world.evaluate(), {}, nullptr);
    INFO(name);
    CHECK(outcomes[0].arm == 0);
    CHECK(outcomes[0].guard == GuardVerdict::ina_passthrough);
  }
}

TEST_CASE("arms in two levels are expected to be slower where all links are alike", "[B-29]") {
  const auto prior_of = [](const nlohmann::json& flat) {
    FakeWorld world;
    world.regime = {{"features", {{"is_flat_interconnect", flat}}}};
    std::vector<SearchTask> tasks{make_task(20)};
    auto& task = tasks[0].task;
    task.space = std::make_shared<const ActionSpace>(
        make_space({.backend = Backend::gloo, .ranks = 8, .nodes = 2}));
    const auto& arms = task.space->arms();
    task.prior_log_us.assign(arms.size(), 5.0);
    const auto agent = exhaustive();
    (void)search(*agent, tasks, world.evaluate(), {}, nullptr);
    std::vector<double> of_two_level;
    for (std::size_t a = 0; a < arms.size(); ++a)
      if (is_hierarchical(*task.space, arms[a])) of_two_level.push_back(task.prior_log_us[a]);
    REQUIRE_FALSE(of_two_level.empty());
    CHECK(task.prior_log_us[0] == 5.0);
    return of_two_level[0];
  };
  CHECK(prior_of(true) == 5.5);
  CHECK(prior_of(false) == 5.0);
  CHECK(prior_of(nullptr) == 5.0);
}

TEST_CASE("what a task sends stays when its first launch tells where it is", "[E-18]") {
  FakeWorld world;
  std::vector<SearchTask> tasks(3, make_task(20));
  set_task(tasks[0].task.state, tasks[0].task.key.task, tasks[0].size, Bytes{1 << 12});
  set_task(tasks[1].task.state, tasks[1].task.key.task, tasks[1].size, tasks[1].size);
  tasks[1].task.state.effective_size = std::nullopt;  // nobody knows before
  const auto agent = exhaustive();
  (void)search(*agent, tasks, world.evaluate(), {}, nullptr);
  for (const SearchTask& task : tasks) CHECK(task.task.state.nominal_size == task.size);
  CHECK(tasks[0].task.state.effective_size == Bytes{1 << 12});
  CHECK_FALSE(tasks[1].task.state.effective_size);
  CHECK(tasks[2].task.state.effective_size == tasks[2].size);
  // A task of what compression left, and a measurement that does not say where it is.
  world.regime = nullptr;
  std::vector<SearchTask> halves{make_task(20)};
  set_task(halves[0].task.state, halves[0].task.key.task, Bytes{1 << 21}, halves[0].size);
  (void)search(*exhaustive(), halves, world.evaluate(), {}, nullptr);
  CHECK(halves[0].task.state.nominal_size == Bytes{1 << 21});
  CHECK(halves[0].task.state.effective_size == halves[0].size);
}

TEST_CASE("faults end a task's exploration and a failed default leaves it alone", "[E-149]") {
  FakeWorld world;
  world.failing = {{0, 1}, {0, 2}, {1, 0}};
  world.us[{0, 4}] = 1;
  std::vector<SearchTask> tasks{make_task(20), make_task(22)};
  const auto agent = exhaustive();
  const auto outcomes = search(*agent, tasks, world.evaluate(), {}, nullptr);
  CHECK(outcomes[0].arm == 0);
  CHECK(outcomes[0].guard == GuardVerdict::failed);
  CHECK(outcomes[0].evaluations < static_cast<int>(tasks[0].task.space->arms().size()));
  CHECK(outcomes[1].evaluations == 1);
  CHECK_FALSE(outcomes[1].best_time);
}

TEST_CASE("settings that miss what they are to reach are no faults and no choice", "[H-12]") {
  FakeWorld world;
  world.missing = {{0, 1}, {0, 2}, {0, 3}};
  world.us[{0, 4}] = 1;
  std::vector<SearchTask> tasks{make_task(20)};
  const auto outcome = search(*exhaustive(), tasks, world.evaluate(), {}, nullptr)[0];
  CHECK(outcome.arm == 4);
  CHECK(outcome.guard == GuardVerdict::pass);
  CHECK(outcome.missed == 3);
  // Where all of them miss it, the default stays.
  for (std::size_t arm = 1; arm < tasks[0].task.space->arms().size(); ++arm)
    world.missing.insert({0, arm});
  for (const char* name : {"exhaustive", "bandit"}) {
    CAPTURE(name);
    std::vector<SearchTask> again{make_task(20)};
    const auto agent = make_agent(name, {});
    SearchOptions few;
    few.max_evaluations = 4;
    const auto none = search(*agent, again, world.evaluate(), few, nullptr)[0];
    CHECK(none.arm == 0);
    CHECK(none.guard == GuardVerdict::pass);
    CHECK(none.challenger == 0);
    CHECK(none.missed >= 1);
  }
}

TEST_CASE("a choice above twice the Gloo floor is reverted", "[E-141]") {
  FakeWorld world;
  world.us[{0, 0}] = 30;
  world.us[{0, 3}] = 25;
  world.otherwise = 40;
  std::vector<SearchTask> tasks{make_task(20)};
  tasks[0].gloo_floor = Micros{10};
  const auto agent = exhaustive();
  const auto outcomes = search(*agent, tasks, world.evaluate(), {}, nullptr);
  CHECK(outcomes[0].arm == 0);
  CHECK(outcomes[0].guard == GuardVerdict::above_gloo_floor);
}

TEST_CASE("an interrupted measurement ends the search with what is known") {
  std::vector<SearchTask> tasks{make_task(20)};
  int calls = 0;
  const Evaluate evaluate = [&](const std::vector<Ask>& asks) {
    std::vector<Measured> results;
    if (++calls > 3) return results;
    results.resize(asks.size());
    for (Measured& measured : results) measured.trial.time = Micros{calls == 2 ? 4.0 : 10.0};
    return results;
  };
  const auto agent = exhaustive();
  const auto outcomes = search(*agent, tasks, evaluate, {}, nullptr);
  CHECK(outcomes[0].evaluations == 3);
  CHECK(outcomes[0].best_time == Micros{4});
}

TEST_CASE("guards judge times against the floor and the default") {
  CHECK(judge_trial(true, Micros{9}, Micros{10}, std::nullopt) == GuardVerdict::pass);
  CHECK(judge_trial(true, Micros{11}, Micros{10}, std::nullopt) == GuardVerdict::pass);
  CHECK(judge_trial(true, Micros{13}, Micros{10}, std::nullopt) ==
        GuardVerdict::slower_than_default);
  CHECK(judge_trial(true, Micros{9}, Micros{10}, Micros{4}) == GuardVerdict::above_gloo_floor);
  CHECK(judge_trial(false, Micros{9}, Micros{10}, std::nullopt) == GuardVerdict::failed);
}

TEST_CASE("every agent spends the same budget over all tasks", "[E-136]") {
  for (const char* name :
       {"random", "coordinate-descent", "exhaustive", "means", "bandit", "ppo"}) {
    CAPTURE(name);
    FakeWorld world;
    std::vector<SearchTask> tasks;
    for (int log2_size = 10; log2_size < 26; log2_size += 2) tasks.push_back(make_task(log2_size));
    AgentOptions agent_options;
    agent_options.policy_path = DYNAMICCL_SOURCE_DIR "/tuner/policy/pretrained.policy";
    const auto agent = make_agent(name, agent_options);
    SearchOptions options;
    options.max_evaluations = 20;
    options.in_flight = 2;
    const auto outcomes = search(*agent, tasks, world.evaluate(), options, {});
    int evaluations = 0;
    for (const SearchOutcome& outcome : outcomes) {
      evaluations += outcome.evaluations;
      // Without a plan none waits until another is done.
      if (!agent->plans()) CHECK(outcome.evaluations >= 2);
    }
    CHECK(evaluations == 20);
  }
}

TEST_CASE("flags: nothing to gain without loss") {
  CHECK(lossless_saturated(Micros{13}, Micros{10}));
  CHECK_FALSE(lossless_saturated(Micros{11}, Micros{10}));
  CHECK_FALSE(lossless_saturated(Micros{11}, Micros{0}));
}
