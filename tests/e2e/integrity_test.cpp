#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>

#include "tests/e2e/program.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::string kSmall = one_cell("\"bare-metal\"", "openmpi") + R"([protocol]
warmup = 0
iterations = 5
launches = 1
retries = 1
)";

std::string reason_of_failed_run(const std::string& more) {
  const Program program;
  const auto run = program.run({"run", program.file("small.toml", kSmall + more)});
  CHECK(run.exit_code == 1);
  // The first attempt and its retry are both kept, and neither counts as a result.
  CHECK(program.value("SELECT count(*) FROM launch WHERE status = 'failed'") == 2);
  CHECK(program.value("SELECT count(*) FROM launch WHERE status = 'ok'") == 0);
  const auto coverage = nlohmann::json::parse(program.run({"query", "coverage", "--json"}).out);
  REQUIRE(coverage.size() == 1);
  CHECK(coverage[0]["status"] == "failed");
  CHECK(program.processes().empty());
  return program.value("SELECT reason FROM launch LIMIT 1");
}

}  // namespace

TEST_CASE("ranks that each run a world of their own fail although every process ends with 0") {
  // What `--cleanenv` does to ranks in containers: the launcher's variables never reach them.
  const auto reason = reason_of_failed_run(
      "[knobs.openmpi]\nmca.orte_fork_agent = \"/usr/bin/env -i HOME=/tmp "
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PATH=/usr/bin:/bin\"\n");
  CHECK_THAT(reason, ContainsSubstring("world"));
  CHECK_THAT(reason, ContainsSubstring("1"));
}

TEST_CASE("a build that flips one received byte fails its cells, and no figure is made of them") {
  const std::vector<std::pair<std::string, std::string>> workers{
      {"openmpi", "dynamiccl-worker-openmpi"},
      {"mpich", "dynamiccl-worker-mpich"},
      {"gloo", "dynamiccl-worker"}};
  for (const auto& [backend, worker] : workers) {
    INFO(backend);
    const std::string faulty = DYNAMICCL_BINARY_DIR "/tests/" + worker + "-faulty";
    if (!std::filesystem::exists(faulty)) continue;  // built without this library
    Program program;
    program.replace_worker(worker, faulty);
    const auto run =
        program.run({"run", program.file("flip.toml", one_cell("\"bare-metal\"", backend) +
                                                          "[protocol]\nwarmup = 0\niterations = 5\n"
                                                          "launches = 1\n")});
    CHECK(run.exit_code == 1);
    const auto coverage = nlohmann::json::parse(program.run({"query", "coverage", "--json"}).out);
    REQUIRE(coverage.size() == 1);
    CHECK(coverage[0]["status"] == "failed");
    CHECK_THAT(coverage[0]["reason"].get<std::string>(), ContainsSubstring("wrong data on rank"));
    CHECK(program.value("SELECT sum(wrong) FROM measurement") >= 1);
    CHECK(nlohmann::json::parse(program.run({"query", "latency", "--json"}).out).empty());
  }
}

TEST_CASE("a profile that lies about its namespaces fails its launch") {
  if (geteuid() != 0) SKIP("unshare needs root");
  const auto reason = reason_of_failed_run(
      "[[profile.bare-metal.backend.openmpi]]\nname = \"mca.orte_fork_agent\"\n"
      "value = \"/usr/bin/unshare --uts\"\nreason = \"promises the machine's own names, gives "
      "others\"\n");
  CHECK_THAT(reason, ContainsSubstring("namespaces"));
  CHECK_THAT(reason, ContainsSubstring("uts"));
}

TEST_CASE("a worker that cannot start is a failed launch with its cause") {
  const auto reason =
      reason_of_failed_run("[knobs.openmpi]\nmca.orte_fork_agent = \"/no/such/program\"\n");
  CHECK_FALSE(reason.empty());
}

TEST_CASE("a launch that hangs is ended at its timeout and stored as timed out") {
  const Program program;
  const auto agent = program.file("hang", "#!/bin/sh\nsleep 1000\n");
  chmod(agent.c_str(), 0755);
  const auto path =
      program.file("small.toml", kSmall + "launch_timeout = \"2s\"\n[knobs.openmpi]\n" +
                                     "mca.orte_fork_agent = \"" + agent + "\"\n");
  const auto run = program.run({"run", path, "--set", "protocol.retries=0"});
  CHECK(run.exit_code == 1);
  CHECK(program.value("SELECT status FROM launch") == "timed_out");
  CHECK_THAT(program.value("SELECT reason FROM launch").get<std::string>(),
             ContainsSubstring("no end after 2 s"));
  CHECK(program.processes().empty());
  CHECK(program
            .run({"run", path, "--set", "protocol.retries=0", "--set",
                  "protocol.launch_timeout=0.05"})
            .exit_code == 1);
  CHECK_THAT(program.value("SELECT reason FROM launch ORDER BY id DESC").get<std::string>(),
             ContainsSubstring("no end after 0.05 s"));
}
