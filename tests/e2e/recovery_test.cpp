#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "containers/command.hpp"
#include "containers/image.hpp"
#include "core/vocabulary/text.hpp"
#include "db/store.hpp"
#include "tests/containers/real_support.hpp"
#include "tests/containers/support.hpp"
#include "tests/e2e/program.hpp"

using namespace dynamiccl;

namespace {

// Those that are held (Program::hold_launches) are under way however late a signal comes.
const std::string kSlow = R"(name = "slow"
[axes]
environment = "bare-metal"
backend = ["openmpi", "gloo"]
architecture = "ring"
ranks = 2
[[work]]
collective = ["allreduce", "broadcast"]
size = ["1MiB"]
[protocol]
warmup = 0
iterations = 100000
cell_time_cap = "500ms"
launches = 3
launch_timeout = "600s"
)";

/// What somebody pastes into a shell who does as the messages say; fails where they do not say it.
CommandResult paste_hint(const std::string& messages) {
  for (const auto& line : split(messages, '\n'))
    if (line.find(" --resume ") != std::string::npos) {
      UNSCOPED_INFO("pasted: " << line);
      return run_command({"/bin/sh", "-c", line});
    }
  FAIL("no command to go on with in: " + messages);
  return {};
}

std::string read_log(const Program& program) {
  std::ifstream file(program.folder() + "/program.log");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A folder of profiles, with a blank in its name, that holds the profile `own`.
std::string folder_of_own_profile(const Program& program, const std::string& value) {
  const std::string folder = program.folder() + "/my profiles";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/own.toml")
      << "name = \"own\"\nextends = \"bare-metal\"\n[environment]\nOMP_NUM_THREADS = \"" << value
      << "\"\n";
  return folder;
}

void wait_until_nothing_runs(const Program& program) {
  for (int i = 0; i < 1200 && !program.processes().empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

}  // namespace

TEST_CASE("a killed run loses nothing stored and is completed without repeating") {
  Program program;
  program.hold_launches(2);
  const auto path = program.file("slow.toml", kSlow);
  const pid_t pid = program.start({"run", path});
  REQUIRE(program.wait_until(kOkLaunches, 2));
  REQUIRE(program.wait_until(kRunning, 1));
  kill(pid, SIGKILL);
  CHECK(Program::wait(pid) == 128 + SIGKILL);
  CHECK(program.value(kOkLaunches) == 2);
  // Launchers die with their orchestrator, and their ranks with them.
  wait_until_nothing_runs(program);
  CHECK(program.processes().empty());

  program.let_go();
  const auto resumed = program.run({"run", path, "--resume"});
  INFO(resumed.err);
  REQUIRE(resumed.exit_code == 0);
  CHECK(program.value("SELECT count(*) FROM run") == 1);
  CHECK(program.value("SELECT status FROM run") == "complete");
  CHECK(program.value(kOkLaunches) == 6);
  CHECK(program.value("SELECT count(*) FROM (SELECT DISTINCT group_id, block FROM launch WHERE "
                      "status = 'ok')") == 6);
  CHECK(program.value("SELECT count(*) FROM launch WHERE status = 'interrupted'") == 1);
  // The resumed part did only what was missing.
  CHECK(program.value("SELECT count(*) FROM launch") == 7);
  CHECK(program.run({"run", path, "--resume"}).exit_code == 2);
}

TEST_CASE("Ctrl-C ends the launch, stores what is there and leaves nothing behind") {
  Program program;
  program.hold_launches(1);
  const auto path = program.file("slow.toml", kSlow);
  const pid_t pid = program.start({"run", path});
  REQUIRE(program.wait_until(kOkLaunches, 1));
  REQUIRE(program.wait_until(kRunning, 1));
  const auto start = std::chrono::steady_clock::now();
  kill(pid, SIGINT);
  CHECK(Program::wait(pid) == 130);
  // What was interrupted would not end by itself for as long as a launch may take.
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::minutes(5));
  CHECK(program.processes().empty());
  CHECK(program.value("SELECT status FROM run") == "interrupted");
  CHECK(program.value(kRunning) == 0);
  CHECK(program.value("SELECT count(*) FROM launch WHERE status = 'interrupted'") == 1);
  program.let_go();
  const auto resumed = program.run({"run", path, "--resume"});
  CHECK(resumed.exit_code == 0);
  CHECK(program.value(kOkLaunches) == 6);
}

TEST_CASE("what Ctrl-C says to paste goes on with the same overrides, cells and profiles") {
  Program program;
  program.hold_launches(0);
  const std::string profiles = folder_of_own_profile(program, "1");
  const auto path = program.file("it's slow.toml", kSlow);
  const pid_t pid =
      program.start({"run", path, "--set", "protocol.launches=2", "--set",
                     "axes.environment = \"own\"", "--only", "backend == gloo and size >= '1MiB'",
                     "--profiles", profiles, "--out", program.folder() + "/kept files"});
  REQUIRE(program.wait_until(kRunning, 1));
  kill(pid, SIGINT);
  REQUIRE(Program::wait(pid) == 130);
  program.let_go();
  const auto resumed = paste_hint(read_log(program));
  INFO(resumed.err);
  CHECK(resumed.exit_code == 0);
  CHECK(program.value("SELECT count(*) FROM run") == 1);
  CHECK(program.value("SELECT status FROM run") == "complete");
  CHECK(program.value(kOkLaunches) == 2);
}

TEST_CASE("what failed launches say to paste tries them again") {
  const Program program;
  const auto agent = program.file("agent", "#!/bin/sh\nexit 1\n");
  std::filesystem::permissions(agent, std::filesystem::perms::owner_all);
  const auto path =
      program.file("fails.toml", one_cell("\"bare-metal\"", "openmpi") +
                                     "[protocol]\nwarmup = 0\niterations = 5\n[knobs.openmpi]\n"
                                     "mca.orte_fork_agent = \"" +
                                     agent + "\"\n");
  const auto failed = program.run({"run", path, "--set", "protocol.retries=0", "--set",
                                   "protocol.launches=2", "--only", "ranks == 2"});
  CHECK(failed.exit_code == 1);
  CHECK(failed.err.find("2 launches failed") != std::string::npos);
  static_cast<void>(program.file("agent", "#!/bin/sh\nexec \"$@\"\n"));
  const auto resumed = paste_hint(failed.err);
  INFO(resumed.err);
  CHECK(resumed.exit_code == 0);
  CHECK(program.value("SELECT count(*) FROM run") == 1);
  CHECK(program.value(kOkLaunches) == 2);
}

TEST_CASE("a run is not resumed with another profile under the same name") {
  const Program program;
  const auto write_profile = [&](const char* value) {
    return folder_of_own_profile(program, value);
  };
  const std::string profiles = write_profile("1");
  const auto path = program.file(
      "x.toml", one_cell("\"own\"", "gloo") + "[protocol]\nlaunches = 1\niterations = 5\n");
  REQUIRE(program.run({"run", path, "--profiles", profiles}).exit_code == 0);
  const std::string run = program.value("SELECT uuid FROM run");
  Store(program.db()).end_run(run, "interrupted");
  write_profile("2");
  const auto other = program.run({"run", path, "--profiles", profiles, "--resume"});
  CHECK(other.exit_code == 2);
  CHECK(other.err.find("run " + run +
                       " cannot be resumed: what it planned in own is something "
                       "else by now") != std::string::npos);
  CHECK(program.value("SELECT status FROM run") == "interrupted");
  write_profile("1");
  CHECK(program.run({"run", path, "--profiles", profiles, "--resume"}).exit_code == 0);
  CHECK(program.value("SELECT count(*) FROM launch") == 1);
}

TEST_CASE("SIGTERM ends a run with its own code") {
  Program program;
  program.hold_launches(0);
  const pid_t pid = program.start({"run", program.file("slow.toml", kSlow)});
  REQUIRE(program.wait_until(kRunning, 1));
  kill(pid, SIGTERM);
  CHECK(Program::wait(pid) == 143);
  CHECK(program.processes().empty());
}

TEST_CASE("an environment that does not come up fails its cells and is tried again on resume") {
  const auto profiles = load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments"});
  const auto& singularity = profile_for_user(profiles, "singularity", only_user_namespaces());
  need(singularity);
  const Program program;
  const auto path =
      program.file("two.toml", one_cell("[\"bare-metal\", \"singularity\"]", "gloo") + R"([protocol]
warmup = 0
iterations = 5
launches = 5
)");
  std::string messages;
  {
    const ScopedVariable missing("DYNAMICCL_APPTAINER_IMAGE", program.folder() + "/no.sif");
    const auto run = program.run({"run", path, "--set", "protocol.launches=2"});
    messages = run.err;
    INFO(run.err);
    CHECK(run.exit_code == 1);
    CHECK(run.err.find("singularity did not come up") != std::string::npos);
  }
  CHECK(program.value("SELECT status FROM run") == "failed");
  CHECK(program.value("SELECT count(*) FROM v_cell WHERE environment = 'bare-metal' AND status = "
                      "'ok' AND launches = 2") == 1);
  const auto failed =
      program.rows("SELECT status, reason FROM v_cell WHERE environment LIKE 'singularity%'");
  REQUIRE(failed.size() == 1);
  CHECK(failed[0]["status"] == "failed");
  CHECK(failed[0]["reason"].get<std::string>().find("/no.sif") != std::string::npos);

  const auto resumed = paste_hint(messages);
  INFO(resumed.err);
  CHECK(resumed.exit_code == 0);
  CHECK(program.value("SELECT status FROM run") == "complete");
  CHECK(program.value("SELECT count(*) FROM v_cell WHERE status = 'ok' AND launches = 2") == 2);
  CHECK(program.value(kOkLaunches) == 4);
}
