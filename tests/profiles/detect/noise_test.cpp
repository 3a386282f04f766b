#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "profiles/detect/noise.hpp"
#include "tests/profiles/detect/fixture_tree.hpp"

using namespace dynamiccl;
using Catch::Matchers::WithinAbs;

TEST_CASE("pressure, load, steal and throttling are read as counters") {
  const test::FixtureTree tree("roce");
  const auto noise = probe_noise(ProbeRoot(tree.path().string()));
  CHECK(noise["psi_cpu_some_avg10_percent"] == 1.5);
  CHECK(noise["psi_cpu_some_total_us"] == 250000);
  CHECK(noise["load_1min"] == 0.5);
  CHECK(noise["cpu_jiffies"] == 1000);
  CHECK(noise["idle_jiffies"] == 810);
  CHECK(noise["steal_jiffies"] == 35);
  CHECK(noise["context_switches"] == 123456);
  CHECK(noise["running_tasks"] == 3);
  CHECK(noise["nr_throttled"] == 7);
}

TEST_CASE("the noise between two readings is shares and rates") {
  const nlohmann::json before{{"clock_s", 10.0},          {"cpu_jiffies", 1000},
                              {"idle_jiffies", 500},      {"steal_jiffies", 10},
                              {"context_switches", 1000}, {"psi_cpu_some_total_us", 0},
                              {"nr_throttled", 3}};
  nlohmann::json after = before;
  after["clock_s"] = 12.0;
  after["cpu_jiffies"] = 1400;
  after["idle_jiffies"] = 600;
  after["steal_jiffies"] = 30;
  after["context_switches"] = 3000;
  after["psi_cpu_some_total_us"] = 500000;
  after["nr_throttled"] = 8;
  const auto between = noise_between(before, after);
  CHECK_THAT(between["seconds"].get<double>(), WithinAbs(2.0, 1e-12));
  CHECK_THAT(between["steal_share"].get<double>(), WithinAbs(0.05, 1e-12));
  CHECK_THAT(between["busy_share"].get<double>(), WithinAbs(0.75, 1e-12));
  CHECK_THAT(between["context_switches_per_s"].get<double>(), WithinAbs(1000.0, 1e-9));
  CHECK_THAT(between["psi_cpu_share"].get<double>(), WithinAbs(0.25, 1e-12));
  CHECK(between["throttled_periods"] == 5.0);
  CHECK(between["psi_io_share"].is_null());
}

TEST_CASE("a counter that went back is unknown, not negative") {
  const auto between = noise_between({{"clock_s", 1.0}, {"nr_throttled", 9}},
                                     {{"clock_s", 2.0}, {"nr_throttled", 1}});
  CHECK(between["throttled_periods"].is_null());
}
