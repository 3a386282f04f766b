#include "containers/private_engine.hpp"

#include <signal.h>
#include <sys/wait.h>

#include <fstream>

#include "containers/docker.hpp"
#include "containers/paths.hpp"
#include "containers/processes.hpp"
#include "containers/run_folder.hpp"
#include "core/error.hpp"
#include "real_support.hpp"
#include "support.hpp"

using namespace dynamiccl;

namespace {

/// An engine in a network namespace of its own, so that it does not touch one that runs already.
PrivateEngineOptions apart(const TempFolder& folder) {
  if (!is_root() || find_program("dockerd").empty()) SKIP("needs root and dockerd");
  return {folder.path() + "/d", {"unshare", "--net"}};
}

Engine engine_at(const std::string& socket) {
  return {EngineKind::docker, {"docker", "--host", "unix://" + socket}, socket, {}, true};
}

bool nothing_left(const PrivateEngineOptions& options) {
  return !engine_running(options) && mounts_below(options.folder).empty() &&
         !std::filesystem::exists(private_engine_socket(options)) &&
         !std::filesystem::exists(options.folder + "/pid");
}

EnvironmentProfile host_network_profile() {
  EnvironmentProfile profile = shipped("single-docker");
  profile.network = Sharing::host;
  return profile;
}

/// A container that runs in the engine.
std::unique_ptr<Environment> container_in(const Engine& engine) {
  import_image(engine, {});
  return start_docker_in(engine, host_network_profile(), test_request("private"));
}

pid_t pid_in(const std::string& path) {
  pid_t pid = 0;
  std::ifstream(path) >> pid;
  return pid;
}

}  // namespace

TEST_CASE("the first share starts a private dockerd, the last one ends it by its pid") {
  const TempFolder folder;
  const PrivateEngineOptions options = apart(folder);
  auto first = std::make_unique<EngineLease>(options);
  CHECK(docker_answers(first->socket()));
  const pid_t pid = pid_in(options.folder + "/pid");
  {
    auto second = std::make_unique<EngineLease>(options);
    CHECK(pid_in(options.folder + "/pid") == pid);
    first.reset();
    CHECK(docker_answers(second->socket()));
    CHECK(stop_abandoned_engine(options).empty());
  }
  CHECK(nothing_left(options));
  // Gone, or a zombie that init has not collected yet.
  std::ifstream command_line("/proc/" + std::to_string(pid) + "/cmdline");
  CHECK(command_line.peek() == std::ifstream::traits_type::eof());
}

TEST_CASE("a private engine that ends takes its containers and mounts along") {
  const TempFolder folder;
  const PrivateEngineOptions options = apart(folder);
  const std::string run_folder = RunFolder::path_of(RunFolder::planned_name(test_run("private")));
  {
    const EngineLease lease(options);
    auto environment = container_in(engine_at(lease.socket()));
    CHECK(output_in(*environment, 0, {"echo", "inside"}) == "inside");
    CHECK_FALSE(mounts_below(options.folder).empty());
    // As a killed run would leave it: the container stays.
    environment.release();
  }
  CHECK(nothing_left(options));
  std::filesystem::remove_all(run_folder);
}

TEST_CASE("the share of a killed process counts no more, and its engine is ended") {
  const TempFolder folder;
  const PrivateEngineOptions options = apart(folder);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    auto lease = std::make_unique<EngineLease>(options);
    if (write(ends[1], "y", 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  char answer = 'n';
  REQUIRE(read(ends[0], &answer, 1) == 1);
  CHECK(stop_abandoned_engine(options).empty());
  CHECK(engine_running(options));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(engine_running(options));
  CHECK_FALSE(stop_abandoned_engine(options).empty());
  CHECK(nothing_left(options));
}

TEST_CASE("a dockerd that was killed itself leaves containers that are cleared too") {
  const TempFolder folder;
  const PrivateEngineOptions options = apart(folder);
  pid_t child = fork();
  if (child == 0) {
    auto lease = std::make_unique<EngineLease>(options);
    container_in(engine_at(lease->socket())).release();
    kill(pid_in(options.folder + "/pid"), SIGKILL);
    kill(getpid(), SIGKILL);
  }
  waitpid(child, nullptr, 0);
  CHECK(engine_running(options));
  CHECK_FALSE(stop_abandoned_engine(options).empty());
  CHECK(nothing_left(options));
}

TEST_CASE("a folder too deep for a socket is refused before anything starts") {
  const TempFolder folder;
  const PrivateEngineOptions options{folder.path() + "/" + std::string(120, 'x'), {}};
  CHECK_THROWS_AS(EngineLease(options), Error);
  CHECK_FALSE(engine_running(options));
}
