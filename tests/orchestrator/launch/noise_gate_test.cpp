#include "orchestrator/launch/noise_gate.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

json before(const json& window) { return {{"window", window}}; }

json rank(double busy, double own_s, double interrupts = 0, double throttled = 0) {
  return {{"busy_share", busy},
          {"cpu_s", 4.0},
          {"own_cpu_s", own_s},
          {"interrupt_share", interrupts},
          {"throttled_periods", throttled}};
}

}  // namespace

TEST_CASE("a quiet machine flags nothing, whatever the ranks themselves use") {
  CHECK(noise_flags(before({{"busy_share", 0.05}, {"steal_share", 0.0}}), {{"steal_share", 0.001}},
                    {rank(0.99, 1.95), rank(0.99, 1.95)}, {}, 2)
            .empty());
}

TEST_CASE("a run that is to begin on a quiet machine waits for one, but not for ever") {
  // A machine made by hand: this one may be busy.
  std::vector<double> busy;
  std::size_t asked = 0;
  const auto wait = [&](Micros most) {
    asked = 0;
    return wait_for_quiet({}, 1, most, [&] {
      const double share = asked < busy.size() ? busy[asked] : 0;
      ++asked;
      return before({{"busy_share", share}, {"steal_share", 0.0}});
    });
  };
  CHECK(wait(Micros(60e6)).empty());
  CHECK(asked == 10);
  busy = {0.9, 0.9, 0, 0, 0.9};
  CHECK(wait(Micros(60e6)).empty());
  CHECK(asked == 15);
  busy.assign(1000, 0.9);
  const auto flags = wait(Micros(0));
  REQUIRE(flags.size() == 1);
  CHECK_THAT(flags[0], ContainsSubstring("others used the CPUs before the launch"));
}

TEST_CASE("this machine is waited for no longer than asked") {
  NoiseLimits limits;
  limits.busy = -1;  // beyond which every machine is
  CHECK_FALSE(wait_for_quiet(limits, 1, Micros(150e3)).empty());
}

TEST_CASE("others' use of the CPUs is told from the ranks' own and from interrupts") {
  const auto flags = noise_flags(before({}), {}, {rank(0.99, 1.0), rank(0.99, 1.0)}, {}, 2);
  REQUIRE(flags.size() == 1);
  CHECK(flags[0] == "others used the CPUs meanwhile: 49 % (limit 25 %)");
  CHECK(noise_flags(before({}), {}, {rank(0.99, 1.0, 0.3), rank(0.99, 1.0, 0.3)}, {}, 2).empty());
}

TEST_CASE("every reading has its limit") {
  const auto flags =
      noise_flags(before({{"busy_share", 0.9},
                          {"steal_share", 0.1},
                          {"psi_cpu_share", 0.5},
                          {"psi_memory_share", 0.5},
                          {"psi_io_share", 0.5},
                          {"other_running_tasks", 3.0}}),
                  {{"steal_share", 0.2}, {"psi_memory_share", 0.2}, {"psi_io_share", 0.4}},
                  {rank(0.5, 2.0, 0, 7)}, {}, 2);
  REQUIRE(flags.size() == 10);
  CHECK(flags[0] == "others used the CPUs before the launch: 90 % (limit 25 %)");
  CHECK(flags[5] == "others' runnable tasks before the launch: 3 (limit 1)");
  CHECK_THAT(flags[9], ContainsSubstring("throttled by a control group: 7 (limit 0)"));
  NoiseLimits off{1, 1000, 1, 1, 1, 1, 1000, Micros(0)};
  CHECK(noise_flags(before({{"busy_share", 0.9}, {"other_running_tasks", 3.0}}),
                    {{"psi_io_share", 0.4}}, {rank(0.9, 0.1, 0, 7)}, off, 2)
            .empty());
}

TEST_CASE("what cannot be read breaks no limit") {
  CHECK(noise_flags(json(), json(), {}, {}, 2).empty());
  CHECK(noise_flags(before({{"busy_share", nullptr}}), {{"steal_share", nullptr}}, {json::object()},
                    {}, 2)
            .empty());
}

TEST_CASE("the gate takes the ranks' counters and no time of theirs") {
  RecordFile file;
  TransportRecord transport;
  transport.details["noise"] = rank(0.5, 1.0);
  file.records = {HelloRecord{}, CellRecord{}, transport};
  const auto readings = noise_of_ranks({file});
  REQUIRE(readings.size() == 1);
  CHECK(readings[0] == rank(0.5, 1.0));
}

TEST_CASE("a GPU whose clocks were held back in one cell is flagged") {
  RecordFile file;
  TransportRecord transport;
  transport.details["noise"] = rank(0.5, 2.0);
  transport.details["gpu"] = {
      {"cell-1", {{"thermally_capped_share", 0.0}, {"power_capped_share", nullptr}}},
      {"cell-2", {{"thermally_capped_share", 0.3}, {"power_capped_share", 0.1}}}};
  file.records = {transport};
  const auto readings = noise_of_ranks({file});
  REQUIRE(readings.size() == 1);
  CHECK(readings[0]["gpu_capped_share"] == 0.3);
  const auto flags = noise_flags(before({}), {}, readings, {}, 2);
  REQUIRE(flags.size() == 1);
  CHECK(flags[0] == "a GPU's clocks held back by heat or power: 30 % (limit 5 %)");
  NoiseLimits more;
  more.gpu_capped = 0.3;
  CHECK(noise_flags(before({}), {}, readings, more, 2).empty());
}

TEST_CASE("stored limits are read back, and those of older programs are as ever") {
  const NoiseLimits odd{0.1, 2, 0.3, 0.4, 0.5, 0.6, 7, Micros(8e6), 0.9};
  CHECK(to_json(noise_limits_from_json(to_json(odd))) == to_json(odd));
  CHECK(to_json(noise_limits_from_json(json())) == to_json(NoiseLimits{}));
  CHECK(noise_limits_from_json({{"busy", 0.75}}).busy == 0.75);
}

TEST_CASE("this machine's window is read, and waited for no longer than asked") {
  NoiseLimits limits;
  limits.wait = Micros(0);
  const auto reading = quiet_window(limits, 2);
  CHECK(reading.contains("clock_s"));
  CHECK(reading.at("window").contains("busy_share"));
  CHECK(reading.at("window").at("seconds") >= 0.1);
}
