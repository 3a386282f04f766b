#include "profiles/detect/gpu_telemetry.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

using namespace dynamiccl;
using Catch::Matchers::WithinRel;

TEST_CASE("what happened to a GPU between two readings is power and shares of time") {
  const nlohmann::json before{{"sm_mhz", 1980},
                              {"energy_mj", 1'000'000},
                              {"power_capped_ns", 5'000'000},
                              {"thermally_capped_ns", nullptr}};
  nlohmann::json after = before;
  after["sm_mhz"] = 1755;
  after["energy_mj"] = 2'000'000;
  after["power_capped_ns"] = 505'000'000;
  const auto between = gpu_between(before, after, 2.0);
  CHECK(between["sm_mhz"] == 1755);
  CHECK_THAT(between["mean_power_w"].get<double>(), WithinRel(500.0));
  CHECK_THAT(between["power_capped_share"].get<double>(), WithinRel(0.25));
  CHECK(between["thermally_capped_share"].is_null());
  CHECK_FALSE(between.contains("energy_mj"));
}

TEST_CASE("reasons for which clocks are held back have names") {
  CHECK(clock_reasons(0).empty());
  CHECK(clock_reasons(0x4 | 0x20) == nlohmann::json{"software_power_cap", "software_thermal"});
}

TEST_CASE("without a GPU the telemetry says why it knows nothing") {
  const GpuTelemetry none("");
  CHECK(none.read()["unknown"] == "this rank uses no GPU");
  // Neither a machine without NVML nor one with other GPUs has this one.
  const GpuTelemetry absent("ffff:ff:1f.0");
  CHECK_FALSE(absent.read()["unknown"].get<std::string>().empty());
  CHECK(gpu_between(absent.read(), absent.read(), 1).contains("unknown"));
}
