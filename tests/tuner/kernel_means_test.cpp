#include "tuner/agents/kernel_means.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <set>

#include "tuner/agents/fastest_measured.hpp"

using namespace dynamiccl;
using Catch::Approx;

namespace {

std::shared_ptr<const ActionSpace> channels_space() {
  std::vector<Knob> knobs{{.name = "algorithm",
                           .role = KnobRole::implementation,
                           .target = "algorithm",
                           .values = {"default", "ring", "tree"}},
                          {.name = "channels", .target = "call.channels", .values = {"default"}}};
  for (int channels = 1; channels <= 64; channels *= 2)
    knobs[1].values.push_back(std::to_string(channels));
  return std::make_shared<const ActionSpace>(
      "fake", std::move(knobs), [](const ActionSpace&, const Action&) { return true; });
}

Task task_of(int log2_size, const std::string& regime = "here") {
  Task task;
  task.space = channels_space();
  task.key = {regime, {.bin = {log2_size}, .group_size = 2, .backend = Backend::nccl}};
  return task;
}

std::size_t arm_of(const Task& task, std::uint8_t algorithm, std::uint8_t channels) {
  return task.space->find(Action{algorithm, channels}).value();
}

void learn(KernelMeans& agent, const Task& task, std::size_t arm, double us) {
  agent.learn(task, arm, {.ok = true, .time = Micros{us}});
}

}  // namespace

TEST_CASE("settings are alike by their knobs' names and numbers, places by size and kind") {
  const Task task = task_of(20);
  const auto features = [&](std::uint8_t algorithm, std::uint8_t channels) {
    return features_of(*task.space, {algorithm, channels});
  };
  CHECK(features(0, 0).empty());
  CHECK(setting_likeness(features(1, 3), features(1, 3)) == 1);
  const double next = setting_likeness(features(1, 3), features(1, 4));
  const double far = setting_likeness(features(1, 1), features(1, 7));
  const double other = setting_likeness(features(1, 3), features(2, 3));
  CHECK(next == Approx(std::exp(-0.5)));
  CHECK(far == Approx(other));
  CHECK(setting_likeness(features(1, 3), features(2, 4)) == Approx(other * next));
  CHECK(setting_likeness(features(1, 3), features(1, 0)) < next);

  const RegimeKey here = task.key;
  CHECK(place_likeness(here, here) == 1);
  CHECK(place_likeness(here, task_of(22).key) > place_likeness(here, task_of(24).key));
  CHECK(place_likeness(here, task_of(20, "there").key) < 1);
  RegimeKey library = here;
  library.task.backend = Backend::mpich;
  CHECK(place_likeness(here, library) == 0);
  RegimeKey collective = here;
  collective.task.collective = Collective::broadcast;
  CHECK(place_likeness(here, collective) < place_likeness(here, task_of(22).key));
}

TEST_CASE("what was measured at one size is expected of the next, and not of distant ones") {
  KernelMeans agent({});
  const Task measured = task_of(20);
  const std::size_t good = arm_of(measured, 0, 5);
  learn(agent, measured, 0, 100);
  learn(agent, measured, good, 40);
  learn(agent, measured, arm_of(measured, 0, 1), 150);
  CHECK(agent.recommend(measured) == good);
  const Task near = task_of(21);
  CHECK(agent.recommend(near) == good);  // without a look of its own
  learn(agent, near, 0, 200);
  CHECK(agent.recommend(near) == good);
  // Its own look counts for more.
  learn(agent, near, good, 400);
  CHECK(agent.recommend(near) != good);
  agent.reopen(measured.key);
  agent.reopen(near.key);
  CHECK(agent.recommend(measured) == 0);
}

TEST_CASE("one round looks at different settings of different sizes, and never at what failed") {
  KernelMeans agent({});
  std::vector<Task> tasks{task_of(10), task_of(11), task_of(12), task_of(13)};
  std::vector<const Task*> shown;
  for (const Task& task : tasks) shown.push_back(&task);
  const std::size_t bad = arm_of(tasks[0], 0, 3);
  for (const Task& task : tasks) agent.learn(task, bad, {.ok = false, .time = {}});
  for (int round = 0; round < 12; ++round) {
    const auto plan = agent.plan(shown, 3);
    REQUIRE(plan.size() == 3);
    std::set<std::size_t> places;
    std::set<std::size_t> arms;
    for (const PlannedChoice& next : plan) {
      places.insert(next.task);
      arms.insert(next.choice.arm);
      CHECK(next.choice.arm != bad);
      learn(agent, tasks[next.task], next.choice.arm, next.choice.arm == 0 ? 100 : 120);
    }
    CHECK(places.size() == 3);
    if (round == 0) CHECK(arms.size() == 3);
  }
  for (const Task& task : tasks) CHECK(agent.recommend(task) == 0);
}

TEST_CASE("a search ends where nothing promises a gain, or with its measurements") {
  AgentOptions modest;
  modest.stop_gain = 10;
  KernelMeans agent(modest);
  const Task task = task_of(20);
  CHECK_FALSE(agent.finished(task));
  learn(agent, task, 0, 100);
  CHECK(agent.finished(task));
  CHECK(agent.plan({&task}, 4).empty());
  CHECK_FALSE(agent.act(task).exploratory);

  AgentOptions few;
  few.max_evaluations = 2;
  KernelMeans limited(few);
  learn(limited, task, 0, 100);
  CHECK_FALSE(limited.finished(task));
  CHECK(limited.act(task).exploratory);
  learn(limited, task, 1, 100);
  CHECK(limited.finished(task));
}

TEST_CASE("what is expected before any look is recommended, and measured away") {
  KernelMeans agent({});
  Task task = task_of(20);
  const std::size_t promised = arm_of(task, 0, 4);
  task.prior_log_us.assign(task.space->arms().size(), 5);
  task.prior_log_us[promised] = 4;
  CHECK(agent.recommend(task) == promised);
  CHECK(agent.plan({&task}, 1).front().choice.arm == promised);
  learn(agent, task, 0, 100);
  learn(agent, task, promised, 300);
  CHECK(agent.recommend(task) != promised);
}

TEST_CASE("where nothing varies the default is measured first and the fastest measured is chosen") {
  FastestMeasured agent(make_agent(kMeans, {}));
  std::vector<Task> tasks{task_of(10), task_of(20)};
  const std::vector<const Task*> shown{&tasks[0], &tasks[1]};
  for (const std::size_t t : {0, 1}) {
    const auto planned = agent.plan(shown, 1);
    REQUIRE(planned.size() == 1);
    CHECK(planned[0].task == t);
    CHECK(planned[0].choice.arm == 0);
    agent.learn(tasks[t], 0, {.ok = true, .time = Micros{100}});
  }
  const auto planned = agent.plan(shown, 1);
  REQUIRE(planned.size() == 1);
  CHECK(planned[0].choice.arm != 0);
  // Whatever the agent inside expects of the others.
  const std::size_t arm = arm_of(tasks[0], 1, 3);
  agent.learn(tasks[0], arm_of(tasks[0], 2, 3), {.ok = false, .time = {}});
  agent.learn(tasks[0], arm_of(tasks[0], 1, 4), {.ok = true, .time = Micros{101}});
  CHECK(agent.recommend(tasks[0]) == 0);
  agent.learn(tasks[0], arm, {.ok = true, .time = Micros{99}});
  CHECK(agent.recommend(tasks[0]) == arm);
  CHECK(agent.recommend(task_of(30)) == 0);
  // Another size of the same bin has times of its own.
  Task larger = tasks[0];
  larger.state.nominal_size = Bytes{1536};
  CHECK(agent.recommend(larger) == 0);
  CHECK(agent.plan({&tasks[0], &larger}, 1).front().task == 1);
  agent.learn(larger, 0, {.ok = true, .time = Micros{50}});
  agent.learn(larger, arm, {.ok = true, .time = Micros{60}});
  CHECK(agent.recommend(larger) == 0);
  CHECK(agent.recommend(tasks[0]) == arm);
  agent.reopen(tasks[0].key);
  CHECK(agent.recommend(tasks[0]) == 0);
}

TEST_CASE("where nothing varies no setting is measured twice") {
  FastestMeasured agent(make_agent(kMeans, {}));
  const Task task = task_of(20);
  std::set<std::size_t> planned;
  for (;;) {
    const auto next = agent.plan({&task}, 1);
    if (next.empty()) break;
    const std::size_t arm = next.front().choice.arm;
    REQUIRE(planned.insert(arm).second);
    agent.learn(task, arm, {.ok = true, .time = Micros{100.0 + 0.1 * static_cast<double>(arm)}});
  }
  CHECK(planned.size() > 1);
}
