// Who chooses between launches of a job.

#include "tuner/job/launch_agent.hpp"

#include <catch2/catch_test_macros.hpp>

#include "tuner/state/last_choice.hpp"

using namespace dynamiccl;

namespace {

Task task_of_four() {
  Task task;
  task.key = {"here", {.bin = SizeBin::of(Bytes(1 << 20)), .group_size = 2}};
  task.space = std::make_shared<const ActionSpace>(
      "four",
      std::vector<Knob>{
          {.name = "channels", .target = "env.CHANNELS", .values = {"default", "1", "2", "4"}}},
      [](const ActionSpace&, const Action&) { return true; });
  return task;
}

}  // namespace

TEST_CASE("a launch's choice is stored with the one before it, never with itself", "[E-55]") {
  Task task = task_of_four();
  const auto agent = launch_agent("exhaustive", {});
  TaskLoop loop(*agent);
  ArmHistory history(task.space->arms().size());
  const ActionSpace& space = *task.space;
  const auto learn = [&](std::size_t arm, double us) {
    const Trial trial{true, Micros(us)};
    history.add(arm, trial);
    loop.put({arm, 1, false});
    return loop.observe(task, trial, std::nullopt).state;
  };
  CHECK_FALSE(learn(0, 100).last_choice.has_value());
  std::size_t before = 0;
  for (int launch = 1; launch < 4; ++launch) {
    const auto choice = next_launch(loop, task, history);
    REQUIRE(choice);
    // No setting is launched twice while another was not seen.
    CHECK(history.tries(choice->arm) == 0);
    const State chosen_in = learn(choice->arm, 100 + launch);
    CHECK(chosen_in.last_choice == last_choice_of(space, space.arms()[before]));
    CHECK(task.state.last_choice == last_choice_of(space, space.arms()[choice->arm]));
    before = choice->arm;
  }
  CHECK_FALSE(next_launch(loop, task, history));
}

TEST_CASE("a setting that ended the job is not launched again, however often it is named") {
  Task task = task_of_four();
  const auto agent = launch_agent("bandit", {});
  TaskLoop loop(*agent);
  ArmHistory history(task.space->arms().size());
  std::vector<int> launched(task.space->arms().size(), 0);
  for (std::optional<Choice> choice = Choice{0, 1, false}; choice && loop.steps() < 50;
       choice = next_launch(loop, task, history)) {
    const Trial trial{choice->arm == 0, Micros(100)};
    ++launched[choice->arm];
    history.add(choice->arm, trial);
    loop.put(*choice);
    loop.observe(task, trial, std::nullopt);
  }
  for (std::size_t arm = 1; arm < launched.size(); ++arm) CHECK(launched[arm] <= 1);
}
