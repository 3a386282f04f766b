#include "tuner/agents/task_loop.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "tuner/state/last_choice.hpp"

using namespace dynamiccl;

namespace {

/// Four settings of which the third is the fastest.
Task task_of_four() {
  Task task;
  task.key = {"here", {.bin = SizeBin::of(Bytes(1024)), .group_size = 2}};
  task.space = std::make_shared<const ActionSpace>(
      "four",
      std::vector<Knob>{
          {.name = "channels", .target = "call.channels", .values = {"default", "1", "2", "4"}}},
      [](const ActionSpace&, const Action&) { return true; });
  return task;
}

/// @returns what was measured
std::vector<std::size_t> measure_all(TaskLoop& loop, const Task& task) {
  std::vector<std::size_t> arms;
  while (!loop.finished(task)) {
    arms.push_back(loop.next(task).arm);
    loop.observe(task, Trial{true, Micros(arms.back() == 2 ? 50.0 : 100.0)});
  }
  return arms;
}

}  // namespace

TEST_CASE("the loop measures until its agent is finished, and then recommends") {
  const Task task = task_of_four();
  const auto agent = make_agent("exhaustive", {});
  TaskLoop loop(*agent);
  CHECK(measure_all(loop, task) == std::vector<std::size_t>{0, 1, 2, 3});
  CHECK(loop.steps() == 4);
  CHECK(loop.finished(task));
  CHECK(loop.recommend(task) == 2);
  CHECK(loop.next(task).arm == 2);
  CHECK_FALSE(loop.choice().exploratory);
}

TEST_CASE("a loop whose measurements are spent asks for no more") {
  const Task task = task_of_four();
  const auto agent = make_agent("exhaustive", {});
  TaskLoop loop(*agent, 3);
  CHECK(measure_all(loop, task).size() == 3);
  CHECK(loop.steps() == 3);
  CHECK(loop.finished(task));
  CHECK(loop.propose(task).arm == 2);
  CHECK_FALSE(loop.propose(task).exploratory);
}

TEST_CASE("a step tells what was in force before its result became part of the state") {
  Task task = task_of_four();
  const auto agent = make_agent("exhaustive", {});
  TaskLoop loop(*agent);
  const LoopStep first = loop.observe(task, Trial{true, Micros(100)}, 0.0);
  CHECK(first.step == 0);
  CHECK(first.choice.arm == 0);
  CHECK_FALSE(first.switched);
  CHECK(first.state.history_known == 0);
  CHECK(task.state.history_known == 1);
  CHECK_FALSE(first.state.last_choice.has_value());
  CHECK(task.state.last_choice == last_choice_of(*task.space, task.space->arms()[0]));

  // A proposal is in force only when it is put so.
  CHECK(loop.propose(task).arm == 1);
  CHECK(loop.choice().arm == 0);
  loop.put({2, 1, true});
  const LoopStep second = loop.observe(task, Trial{true, Micros(50)}, std::log(0.5));
  CHECK(second.switched);
  CHECK(second.state.history_known == 1);
  CHECK(task.state.log_latency_history[0] == std::log(0.5));
  const StepOutcome outcome = outcome_of(second, Micros(50), Micros(100));
  CHECK(outcome.switched);
  CHECK(outcome.exploratory);
  CHECK(outcome.step == Micros(50));
  CHECK(outcome.reference_call == Micros(100));

  // What the agent is not told changes nothing that it knows.
  loop.put({3, 1, true});
  loop.observe(task, std::nullopt, std::nullopt);
  CHECK(loop.last_arm() == 3);
  CHECK(task.state.history_known == 2);
  CHECK(loop.propose(task).arm == 1);
  CHECK(loop.recommend(task) == 2);

  loop.reopen(task);
  CHECK_FALSE(loop.last_arm());
  CHECK(loop.propose(task).arm == 0);
  CHECK(loop.recommend(task) == 0);
}
