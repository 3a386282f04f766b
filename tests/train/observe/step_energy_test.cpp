#include "train/observe/step_energy.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

using namespace dynamiccl;
using Catch::Matchers::WithinRel;
using nlohmann::json;

TEST_CASE("a GPU's energy between readings is summed over measured steps", "[H-13]") {
  EnergyCount energy;
  energy.add({{"energy_mj", 1'000'000}}, {{"energy_mj", 1'060'000}}, 0.2, 20);
  // Warm-up and evaluation lie between the readings of two rounds of measuring.
  energy.add({{"energy_mj", 2'000'000}}, {{"energy_mj", 2'030'000}}, 0.1, 10);
  const json said = energy.as_json();
  CHECK_THAT(said["joules"].get<double>(), WithinRel(90.0));
  CHECK_THAT(said["seconds"].get<double>(), WithinRel(0.3));
  CHECK(said["steps"] == 30);
}

TEST_CASE("where NVML does not tell the energy the reason is kept", "[H-13]") {
  EnergyCount energy;
  energy.add({{"unknown", "no driver"}}, {{"unknown", "no driver"}}, 0.2, 20);
  CHECK(energy.as_json() == json{{"unknown", "no driver"}});
  EnergyCount refused;
  refused.add({{"energy_mj", nullptr}},
              {{"energy_mj", nullptr}, {"unknown", {{"energy_mj", "no"}}}}, 0.2, 20);
  CHECK(refused.as_json() == json{{"unknown", "NVML does not tell this GPU's energy"}});
}

TEST_CASE("a rank without a GPU counts no energy, and its steps run all the same", "[H-13]") {
  StepEnergy energy(nullptr);
  CHECK(energy.over(3, [] { return 5.0; }) == 5.0);
  TrainingFigures figures;
  energy.describe(figures);
  CHECK_FALSE(figures.details.contains("energy"));
}
