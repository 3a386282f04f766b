#include <catch2/catch_test_macros.hpp>

#include "containers/environment.hpp"
#include "tests/containers/real_support.hpp"
#include "tests/e2e/program.hpp"

using namespace dynamiccl;

TEST_CASE("every backend measures in every environment, and each regime is what it is called") {
  const auto profiles = load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments"});
  for (const char* name : {"singularity", "single-docker", "cross-docker"}) need(profiles.at(name));
  const Program program;
  const auto run = program.run(
      {"run", DYNAMICCL_SOURCE_DIR "/experiments/smoke.toml", "--set",
       "axes.environment=[\"bare-metal\", \"singularity\", \"single-docker\", \"cross-docker\"]",
       "--set", "axes.backend=[\"openmpi\", \"mpich\", \"gloo\", \"nccl\"]", "--set",
       "protocol.launches=1"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const auto coverage = nlohmann::json::parse(program.run({"query", "coverage", "--json"}).out);
  CHECK(coverage.size() == 4 * 4 * 8);
  for (const auto& cell : coverage) {
    if (cell["backend"] == "nccl" && cell["status"] == "unsupported") {
      CHECK_FALSE(cell["reason"].get<std::string>().empty());
    } else {
      CHECK(cell["status"] == "ok");
    }
  }
  const auto regimes =
      program.rows("SELECT DISTINCT environment, regime_name FROM v_launch ORDER BY 1");
  for (const auto& row : regimes)
    CHECK(row["regime_name"].get<std::string>().starts_with(row["environment"].get<std::string>()));
  CHECK(program.processes().empty());
}
