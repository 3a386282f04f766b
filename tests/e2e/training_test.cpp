#include <catch2/catch_test_macros.hpp>
#include <map>
#include <set>
#include <string>

#include "containers/environment.hpp"
#include "tests/containers/real_support.hpp"
#include "tests/e2e/program.hpp"

using namespace dynamiccl;

TEST_CASE("methods and PyTorch's own engine train in every environment, and are bit-equal") {
  const auto profiles = load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments"});
  for (const char* name : {"singularity", "single-docker", "cross-docker"}) need(profiles.at(name));
  const Program program;
  const std::string file = program.file("training.toml", R"(name = "training"
[axes]
environment = ["bare-metal", "singularity", "single-docker", "cross-docker"]
backend = "gloo"
architecture = "ring"
ranks = 2
[[work]]
training = ["bsp-a2a", "ddp"]
model = "mlp"
batch = 4
samples = 64
oracle = 3
[protocol]
warmup = 1
iterations = 3
launches = 1
)");
  const auto run = program.run({"run", file});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const auto coverage = nlohmann::json::parse(program.run({"query", "coverage", "--json"}).out);
  CHECK(coverage.size() == 4 * 2);
  for (const auto& cell : coverage) {
    INFO(cell.dump());
    CHECK(cell["status"] == "ok");
  }
  const auto rows = program.rows(
      "SELECT environment, method, v.max_difference, wrong, parameters_sha256 FROM v_training v "
      "JOIN training t ON t.measurement_id = v.measurement_row AND t.rank = 0");
  REQUIRE(rows.size() == 4 * 2);
  std::map<std::string, std::set<std::string>> weights;
  for (const auto& row : rows) {
    INFO(row.dump());
    CHECK(row["max_difference"] == 0.0);
    CHECK(row["wrong"] == 0);
    weights[row["environment"].get<std::string>()].insert(
        row["parameters_sha256"].get<std::string>());
  }
  // Both methods average two gradients, which no order changes; every launch has data of its own.
  CHECK(weights.size() == 4);
  for (const auto& [environment, digests] : weights) {
    INFO(environment);
    CHECK(digests.size() == 1);
  }
  for (const char* query : {"prediction", "training_memory"})
    CHECK(nlohmann::json::parse(program.run({"query", query, "--json"}).out).size() == 8);
}
