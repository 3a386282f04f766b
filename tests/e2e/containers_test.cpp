#include <catch2/catch_test_macros.hpp>
#include <csignal>

#include "containers/start/environment.hpp"
#include "tests/containers/real_support.hpp"
#include "tests/e2e/program.hpp"

using namespace dynamiccl;

namespace {

const std::string kThreeLaunches = one_cell("\"cross-docker\"", "openmpi") + R"([protocol]
warmup = 0
iterations = 100000
cell_time_cap = "300ms"
launches = 3
launch_timeout = "600s"
)";

/// Starts the run, and sends the signal into its second launch, which waits for it. @returns the
/// exit code
int run_with_signal(Program& program, const std::string& path, int signal) {
  program.hold_launches(1);
  const pid_t pid = program.start({"run", path});
  const bool under_way = program.wait_until(kOkLaunches, 1) && program.wait_until(kRunning, 1);
  kill(pid, signal);
  const int code = Program::wait(pid);
  INFO(program.said());
  REQUIRE(under_way);
  return code;
}

void complete(const Program& program, const std::string& path) {
  program.let_go();
  const auto resumed = program.run({"run", path, "--resume"});
  INFO(resumed.err);
  CHECK(resumed.exit_code == 0);
  CHECK(program.value(kOkLaunches) == 3);
}

}  // namespace

TEST_CASE("Ctrl-C in a run across containers leaves no container, network or process") {
  const auto profiles = load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments"});
  need(profiles.at("cross-docker"));
  const auto engine = held_engine();
  Program program;
  const auto path = program.file("three.toml", kThreeLaunches);
  CHECK(run_with_signal(program, path, SIGINT) == 130);
  CHECK(program.processes().empty());
  CHECK(traces_of(program.value("SELECT uuid FROM run")).empty());
  complete(program, path);
  CHECK(traces_of(program.value("SELECT uuid FROM run")).empty());
}

TEST_CASE("what a killed run across containers leaves is removed, and the run is completed") {
  const auto profiles = load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments"});
  need(profiles.at("cross-docker"));
  const auto engine = held_engine();
  // Any dynamiccl of this machine may be faster with removing it: then another run is killed.
  bool ours = false;
  for (int i = 0; i < 3 && !ours; ++i) {
    Program program;
    const auto path = program.file("three.toml", kThreeLaunches);
    CHECK(run_with_signal(program, path, SIGKILL) == 128 + SIGKILL);
    const std::string run = program.value("SELECT uuid FROM run");
    const auto left = traces_of(run).size();
    const auto clean = program.run({"clean"});
    CHECK(clean.exit_code == 0);
    CHECK(traces_of(run).empty());
    complete(program, path);
    ours = left == 3 &&  // two containers and their network
           clean.out.find("removed container ") != std::string::npos &&
           clean.out.find("removed network ") != std::string::npos;
  }
  CHECK(ours);
}

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
