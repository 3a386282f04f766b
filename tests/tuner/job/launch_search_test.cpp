// The search between launches of a job.

#include "tuner/job/launch_search.hpp"

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

TEST_CASE("a launch's choice is told with the one before it, never with itself", "[E-55]") {
  LaunchSearch search(task_of_four(), {.agent = "exhaustive", .launches = 4});
  CHECK_FALSE(search.chosen_in().last_choice.has_value());
  const ActionSpace& space = *search.task().space;
  search.learn(0, {true, Micros(100)});
  CHECK_FALSE(search.chosen_in().last_choice.has_value());
  std::size_t before = 0;
  for (int launch = 1; launch < 4; ++launch) {
    const auto choice = search.next();
    REQUIRE(choice);
    // What a job cannot have is no choice of anybody's.
    if (launch == 2) search.rule_out(before);
    search.learn(choice->arm, {true, Micros(100 + launch)});
    CHECK(search.chosen_in().last_choice == last_choice_of(space, space.arms()[before]));
    CHECK(search.task().state.last_choice == last_choice_of(space, space.arms()[choice->arm]));
    before = choice->arm;
  }
}
