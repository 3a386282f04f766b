#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "containers/processes.hpp"
#include "containers/run_folder.hpp"
#include "core/vocabulary/error.hpp"
#include "real_support.hpp"

using namespace dynamiccl;

namespace {

std::vector<std::string> marked_processes(const std::string& environment) {
  std::vector<std::string> found;
  for (const ProcessInfo& process : list_processes())
    if (process_variable(process.pid, "DYNAMICCL_ENVIRONMENT") == environment)
      found.push_back(process.name);
  return found;
}

/// Runs `body` in a child process that is killed with SIGKILL once it is done.
template <class Body>
void in_killed_process(Body body) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    char answer = 'n';
    try {
      body();
      answer = 'y';
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    if (write(ends[1], &answer, 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  char answer = 'n';
  CHECK(read(ends[0], &answer, 1) == 1);
  CHECK(answer == 'y');
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
}

/// Any dynamiccl of this machine may sweep what a killed run has left: where one was faster than
/// we, it is left and swept anew.
template <class LeaveAndSweep>
bool swept_by_us(LeaveAndSweep leave_and_sweep) {
  bool ours = false;
  for (int i = 0; i < 5 && !ours; ++i) ours = leave_and_sweep();
  return ours;
}

bool mentions(const std::vector<std::string>& lines, const std::string& word) {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(word) != std::string::npos; });
}

}  // namespace

TEST_CASE("stop leaves no container, network, process, mount or folder") {
  for (const char* name :
       {"bare-metal", "singularity", "singularity-inside", "singularity-userns-inside",
        "single-docker", "cross-docker", "cross-docker-shared"}) {
    INFO(name);
    const StartRequest request = test_request("stop");
    const std::string environment_name = RunFolder::planned_name(request.run_id);
    const auto environment = started(shipped(name), request);
    CommandOptions brief;
    brief.timeout = std::chrono::milliseconds(700);
    run_command(environment->wrap_rank(0, {"setsid", "sleep", "4713"}, {}), brief);
    environment->stop();
    CHECK(traces_of(request.run_id).empty());
    CHECK(marked_processes(environment_name).empty());
    CHECK_FALSE(std::filesystem::exists(RunFolder::path_of(environment_name)));
    std::ifstream mounts("/proc/self/mountinfo");
    std::stringstream text;
    text << mounts.rdbuf();
    CHECK(text.str().find(environment_name) == std::string::npos);
    CHECK_NOTHROW(environment->stop());
  }
}

TEST_CASE("a container that cannot start takes the network and its siblings with it") {
  EnvironmentProfile profile = shipped("cross-docker");
  need(profile);
  const StartRequest request = test_request("fail");
  prepare(profile, {});
  profile.security_options = {"nonsense=1"};
  try {
    start_environment(profile, request);
    FAIL("a nonsense security option was accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::environment);
    INFO(error.what());
    CHECK(std::string(error.what()).find("nonsense") != std::string::npos);
  }
  CHECK(traces_of(request.run_id).empty());
}

TEST_CASE("what a killed run leaves is removed, what a living run has stays") {
  const EnvironmentProfile& docker = shipped("cross-docker");
  need(docker);
  const StartRequest living_request = test_request("living");
  const auto living = started(docker, living_request);
  const StartRequest dead_request = test_request("dead");
  CHECK(swept_by_us([&] {
    in_killed_process([&] { start_environment(docker, dead_request).release(); });
    const auto left = traces_of(dead_request.run_id).size();
    const auto removed = clean_leftovers();
    CHECK(traces_of(dead_request.run_id).empty());
    return left == 3 && mentions(removed, "container") && mentions(removed, "network") &&
           mentions(removed, "folder");
  }));
  CHECK(traces_of(living_request.run_id).size() == 3);
  CHECK(output_in(*living, 1, {"echo", "alive"}) == "alive");
}

TEST_CASE("processes of a killed run on this host are ended") {
  const StartRequest request = test_request("dead-bare");
  const std::string name = RunFolder::planned_name(request.run_id);
  CHECK(swept_by_us([&] {
    in_killed_process([&] {
      auto environment = start_environment(shipped("bare-metal"), request);
      CommandOptions marked;
      marked.environment = environment->shape().launcher_environment;
      marked.output_file = "/dev/null";
      run_command({"setsid", "--fork", "sleep", "4714"}, marked);
      environment.release();
    });
    // It may not have become what it is to be yet.
    const std::vector<std::string> wanted{"sleep"};
    for (int i = 0; i < 500 && marked_processes(name) != wanted; ++i) usleep(20000);
    const bool left = marked_processes(name) == wanted;
    const auto removed = clean_leftovers();
    CHECK(marked_processes(name).empty());
    CHECK_FALSE(std::filesystem::exists(RunFolder::path_of(name)));
    return left && mentions(removed, "process");
  }));
}
