#include "orchestrator/run/stopping.hpp"

#include <catch2/catch_test_macros.hpp>

#include "tests/core/statistics/simulated_machine.hpp"

using namespace dynamiccl;

namespace {

RunProtocol adaptive() {
  RunProtocol protocol;
  protocol.target_interval = 0.05;
  protocol.max_launches = 20;
  return protocol;
}

const std::vector<double> kSteadyAtFirst{100, 101, 99, 100, 100, 100};
const std::vector<double> kSteady{100, 101, 99, 100, 100, 100, 101, 99, 100};
const std::vector<double> kWild{100, 200, 50, 400, 100, 30, 100, 200, 50};

}  // namespace

TEST_CASE("without a target the launches are what the file says") {
  RunProtocol protocol;
  protocol.launches = 3;
  CHECK(first_launches(protocol) == 3);
  CHECK(most_launches(protocol) == 3);
  CHECK_FALSE(stopping_rule(protocol));
  CHECK(launches_text(protocol) == "3 launches");
}

TEST_CASE("with a target the first look comes after six launches or more, never beyond the most") {
  auto protocol = adaptive();
  CHECK(first_launches(protocol) == 6);
  CHECK(most_launches(protocol) == 20);
  CHECK(launches_text(protocol) == "6 to 20 launches, until the 95 % interval is within 5 %");
  protocol.launches = 8;
  CHECK(first_launches(protocol) == 8);
  protocol.launches = 2;
  protocol.max_launches = 4;
  CHECK(first_launches(protocol) == 4);
  protocol.time_budget = Micros(90e6);
  CHECK(launches_text(protocol).ends_with("within 5 %, within 90 s"));
}

TEST_CASE("a group is done when every cell is narrow enough at its last two looks") {
  const auto rule = *stopping_rule(adaptive());
  CHECK(progress_of({{"g", "a", kSteady}, {"g", "b", kSteady}}, rule).reached);
  const auto wide = progress_of({{"g", "a", kSteady}, {"g", "b", kWild}}, rule);
  CHECK_FALSE(wide.reached);
  CHECK(wide.wide_cells == 1);
  const auto once = progress_of({{"g", "a", kSteadyAtFirst}}, rule);
  CHECK_FALSE(once.reached);
  CHECK(*once.widest < 0.05);
  CHECK(wide.widest_cell == "b");
  CHECK(*wide.widest > 0.5);
  CHECK_FALSE(progress_of({}, rule).reached);
}

TEST_CASE("between two looks the earlier one counts") {
  const auto rule = *stopping_rule(adaptive());
  auto between = kSteady;
  between.push_back(1000);  // the tenth launch; the next look is after fourteen
  CHECK(progress_of({{"g", "a", between}}, rule).reached);
  between.resize(5);
  const auto early = progress_of({{"g", "a", between}}, rule);
  CHECK_FALSE(early.reached);
  CHECK_FALSE(early.widest);
  CHECK(early.launches == 5);
}

TEST_CASE("the most launches are looked at, wherever they lie") {
  auto protocol = adaptive();
  protocol.max_launches = 10;
  std::vector<double> medians(10, 100.0);
  // One far out leaves nine launches with a narrow interval, the second one widens that of ten.
  medians[0] = medians[9] = 500;
  const auto rule = *stopping_rule(protocol);
  CHECK(last_look(9, rule) == 9);
  CHECK(last_look(10, rule) == 10);
  CHECK_FALSE(progress_of({{"g", "a", medians}}, rule).reached);
}

TEST_CASE("how a group stopped is a document") {
  const auto protocol = adaptive();
  const auto progress = progress_of({{"g", "a", kSteady}}, *stopping_rule(protocol));
  const auto document = stopping_json(progress, protocol, "target");
  CHECK(document["reached"] == true);
  CHECK(document["launches"] == 9);
  CHECK(document["stopped_by"] == "target");
  CHECK(document["target_interval"] == 0.05);
  CHECK(document["widest"].get<double>() < 0.05);
}

TEST_CASE("the most launches suffice with one narrow interval") {
  auto protocol = adaptive();
  protocol.max_launches = 6;
  const auto rule = *stopping_rule(protocol);
  CHECK(progress_of({{"g", "a", kSteadyAtFirst}}, rule).reached);
}

TEST_CASE("stopping at a target interval keeps its coverage") {
  // Launches of the simulated machine are 2 % apart: the target is reached early, late, hardly
  // ever.
  constexpr int experiments = 1000;
  constexpr double truth = testing::kTrueTime;
  for (const double target : {0.02, 0.01, 0.007}) {
    testing::SimulatedMachine machine(21);
    const StoppingRule rule{target, 6, 40};
    int covered = 0;
    for (int e = 0; e < experiments; ++e) {
      CellMedians cell{"g", "a", {}};
      GroupProgress progress;
      while (!progress.reached && progress.launches < rule.max_launches) {
        cell.median_us.push_back(machine.launch_medians(1).front());
        progress = progress_of({cell}, rule);
      }
      const auto interval = launch_interval(cell.median_us).value();
      covered += interval.low <= truth && truth <= interval.high ? 1 : 0;
    }
    CAPTURE(target);
    CHECK(covered >= 0.925 * experiments);
  }
}
