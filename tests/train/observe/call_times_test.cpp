#include "train/observe/call_times.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

using namespace dynamiccl;
using Catch::Matchers::WithinAbs;

TEST_CASE("every call of a step is kept with its start and time, and the step with its gaps",
          "[A-17][D-39][H-14]") {
  CallTimes times;
  times.add(1000, {{"reduce", 1, 1100, 1150}, {"agree", 0, 1160, 1170}, {"reduce", 0, 1300, 1400}});
  // Calls of 10 us, each 100 us after the one before: as a clock ticks.
  times.add(2000, {{"reduce", 1, 1400, 1410}, {"reduce", 0, 1500, 1510}, {"pull", 0, 1600, 1610}});
  times.add(3000, {});
  const auto& steps = times.steps();
  REQUIRE(steps.size() == 3);
  CHECK(steps[0].calls == 2);
  CHECK(steps[0].calls_us == 150);
  CHECK(steps[0].median_gap_us == 200);
  CHECK_FALSE(steps[0].burstiness);
  // The last call of the step before counts.
  CHECK(steps[1].calls == 3);
  CHECK(steps[1].median_gap_us == 100);
  CHECK(steps[1].largest_gap_us == 100);
  REQUIRE(steps[1].burstiness);
  CHECK_THAT(*steps[1].burstiness, WithinAbs(-1, 1e-9));
  CHECK(steps[2].calls == 0);
  CHECK_FALSE(steps[2].median_gap_us);

  const auto said = times.as_json();
  CHECK(said["kinds"] == nlohmann::json{"reduce", "pull"});
  REQUIRE(said["each"].size() == 5);
  CHECK(said["each"][1] == nlohmann::json{0, 0, 0, 300.0, 100.0});
  CHECK(said["each"][4] == nlohmann::json{1, 1, 0, -400.0, 10.0});
  CHECK(said["left_out"] == 0);
  // Gaps of 200, 100, 100 and 100 us: s = 43.3, m = 125.
  CHECK_THAT(said["burstiness"].get<double>(), WithinAbs(-0.485, 1e-9));
  REQUIRE(said["steps"].size() == 3);
  CHECK(said["steps"][1] == nlohmann::json{3, 30.0, 100.0, 100.0, -1.0});
  CHECK(said["steps"][0][4].is_null());
}

TEST_CASE("calls that come in bursts are told from calls that come evenly", "[D-39]") {
  CallTimes times;
  std::vector<Span> spans;
  for (int burst = 0; burst < 20; ++burst)
    for (int i = 0; i < 20; ++i)
      spans.push_back({"reduce", 0, burst * 100'000.0 + i, burst * 100'000.0 + i + 1});
  times.add(0, spans);
  REQUIRE(times.steps()[0].burstiness);
  CHECK(*times.steps()[0].burstiness > 0.5);
  CHECK(times.steps()[0].median_gap_us == 1);
}

TEST_CASE("steps that do not follow each other have no gap between them, and bytes of a call stay",
          "[A-17][D-39]") {
  CallTimes times;
  times.add(1000, {{"reduce", 0, 1100, 1150}, {"reduce", 1, 1300, 1310}}, false);
  // Seven steps later, as on a GPU.
  times.add(9000, {{"push", 0, 9100, 9200, 0, 4096}, {"pull", 0, 9200, 9400, 0, 8192}}, false);
  CHECK(times.steps()[1].median_gap_us == 100);
  CHECK(times.steps()[1].largest_gap_us == 100);
  const auto said = times.as_json();
  CHECK(said["each"][0] == nlohmann::json{0, 0, 0, 100.0, 50.0});
  CHECK(said["each"][3] == nlohmann::json{1, 2, 0, 200.0, 200.0, 8192});
}

TEST_CASE("what a codec does between the calls of a step is no call", "[A-17][D-39]") {
  CallTimes times;
  times.add(1000, {{"encode", 0, 1000, 1050},
                   {"all-gather", 0, 1100, 1200},
                   {"decode", 0, 1200, 1290},
                   {"all-gather", 1, 1400, 1500}});
  REQUIRE(times.steps().size() == 1);
  CHECK(times.steps()[0].calls == 2);
  CHECK(times.steps()[0].calls_us == 200);
  CHECK(times.steps()[0].median_gap_us == 300);
  CHECK(times.as_json()["kinds"] == nlohmann::json{"all-gather"});
}

TEST_CASE("of very many calls the first are kept, of all steps the sums", "[A-17]") {
  CallTimes times;
  for (std::size_t step = 0; step < CallTimes::kMostCalls / 2 + 5; ++step)
    times.add(0, {{"reduce", 0, 0, 1}, {"reduce", 1, 1, 2}});
  const auto said = times.as_json();
  CHECK(said["each"].size() == CallTimes::kMostCalls);
  CHECK(said["left_out"] == 10);
  CHECK(said["steps"].size() == CallTimes::kMostCalls / 2 + 5);
  CHECK(CallTimes{}.as_json().is_null());
}
