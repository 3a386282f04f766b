#include "containers/private_engine.hpp"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "containers/docker.hpp"
#include "containers/network_traces.hpp"
#include "containers/paths.hpp"
#include "containers/processes.hpp"
#include "containers/run_folder.hpp"
#include "core/vocabulary/error.hpp"
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

constexpr int kNotAllowed = 77;

/// Bit by bit what an engine did not do, or left behind, in a new network namespace of this
/// process.
int traces_in_own_network(const PrivateEngineOptions& options) {
  if (unshare(CLONE_NEWNET) != 0) return kNotAllowed;
  std::ofstream("/proc/sys/net/ipv4/ip_forward") << "0\n" << std::flush;
  const NetworkState before = look_at_network();
  NetworkState during;
  {
    const EngineLease lease(options);
    const Engine engine = engine_at(lease.socket());
    run_command(engine_argv(engine, {"network", "create", "left-behind"}));
    during = look_at_network();
  }
  const NetworkState after = look_at_network();
  const auto& rules = after.rules.at("iptables");
  const bool all_seen = during.links.size() == before.links.size() + 2 && during.forwards &&
                        during.rules.at("iptables").find("DOCKER") != std::string::npos;
  return (all_seen ? 0 : 1) | (after.links == before.links ? 0 : 2) |
         (undo_firewall(before.rules.at("iptables"), rules, true).empty() ? 0 : 4) |
         (rules.find("DOCKER") == std::string::npos ? 0 : 8) | (after.forwards ? 16 : 0);
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

TEST_CASE("what a private engine's daemons write to temporary files goes with it") {
  const TempFolder folder;
  const PrivateEngineOptions options = apart(folder);
  std::string in_tmp;
  bool seen = false;
  {
    const EngineLease lease(options);
    for (const ProcessInfo& process : list_processes())
      if (process.name == "containerd" && belongs_to_engine(process, options)) {
        // dockerd does so to one that does not answer, before it kills it.
        kill(process.pid, SIGUSR1);
        const std::string file = "/containerd." + std::to_string(process.pid) + ".stacks.log";
        in_tmp = "/tmp" + file;
        for (int i = 0; i < 1200 && !seen; ++i) {
          usleep(50000);
          seen = std::filesystem::exists(options.folder + "/tmp" + file);
        }
      }
  }
  CHECK(seen);
  CHECK_FALSE(std::filesystem::exists(in_tmp));
  CHECK_FALSE(std::filesystem::exists(options.folder + "/tmp"));
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
    [[maybe_unused]] static const Environment* left_behind = nullptr;
    left_behind = environment.release();
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

TEST_CASE("containers whose shims were killed with their dockerd are ended too", "[safety]") {
  const TempFolder folder;
  const PrivateEngineOptions options = apart(folder);
  const pid_t child = fork();
  if (child == 0) {
    auto lease = std::make_unique<EngineLease>(options);
    const Engine engine = engine_at(lease->socket());
    container_in(engine).release();
    const auto ids = run_command(engine_argv(engine, {"ps", "--quiet"})).out;
    const auto inside = run_command(
        engine_argv(engine, {"inspect", "--format", "{{.State.Pid}}", std::string(trim(ids))}));
    std::ofstream(folder.path() + "/inside") << inside.out;
    for (const ProcessInfo& process : list_processes())
      if (belongs_to_engine(process, options)) kill(process.pid, SIGKILL);
    kill(getpid(), SIGKILL);
  }
  waitpid(child, nullptr, 0);
  const pid_t inside = pid_in(folder.path() + "/inside");
  REQUIRE(inside > 0);
  REQUIRE(kill(inside, 0) == 0);
  const auto removed = stop_abandoned_engine(options);
  CHECK(std::any_of(removed.begin(), removed.end(),
                    [](const std::string& line) { return line.ends_with("of a container"); }));
  // Gone, or a zombie that init has not collected yet.
  std::ifstream command_line("/proc/" + std::to_string(inside) + "/cmdline");
  CHECK(command_line.peek() == std::ifstream::traits_type::eof());
  CHECK(nothing_left(options));
}

TEST_CASE("a private engine leaves the machine's network as it was") {
  const TempFolder folder;
  PrivateEngineOptions options = apart(folder);
  options.prefix.clear();
  const auto processes = list_processes();
  if (std::any_of(processes.begin(), processes.end(), [](const ProcessInfo& process) {
        return process.name == "dockerd" && !process.argv.empty();
      }))
    SKIP("another dockerd runs: traces of the two could not be told apart");
  const pid_t child = fork();
  if (child == 0) {
    int traces = 32;
    try {
      traces = traces_in_own_network(options);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    _exit(traces);
  }
  int status = 0;
  waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNotAllowed) SKIP("this user may not make network namespaces");
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(nothing_left(options));
  CHECK_FALSE(std::filesystem::exists(options.folder + "/network-before.json"));
}

TEST_CASE("an engine that a busy machine lets wait is not taken for dead", "[safety]") {
  const TempFolder folder;
  // Whoever takes it for dead starts none in its place.
  const PrivateEngineOptions options{folder.path() + "/d", {"false"}};
  std::filesystem::create_directory(options.folder);
  const std::string socket_path = private_engine_socket(options);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  REQUIRE(socket_path.size() < sizeof address.sun_path);
  socket_path.copy(address.sun_path, socket_path.size());
  REQUIRE(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(listen(listener, 16) == 0);
  struct stat before {};
  REQUIRE(lstat(socket_path.c_str(), &before) == 0);
  std::thread engine([&] {
    // The first who asks has gone by the time that it is answered.
    const std::string answer = "HTTP/1.0 200 OK\r\n\r\nOK";
    for (int client = 0, asked = 0; (client = accept(listener, nullptr, nullptr)) >= 0;) {
      char request[512];
      while (read(client, request, sizeof request) > 0)
        if (++asked > 1) {
          static_cast<void>(send(client, answer.data(), answer.size(), MSG_NOSIGNAL));
          break;
        }
      close(client);
    }
  });
  // Another program's share, with which nobody ends the engine.
  const int users =
      open((options.folder + "/users.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  REQUIRE(flock(users, LOCK_SH) == 0);
  CHECK_NOTHROW(EngineLease(options));
  // A start would have removed it.
  struct stat after {};
  CHECK(lstat(socket_path.c_str(), &after) == 0);
  CHECK(after.st_ino == before.st_ino);
  close(users);
  shutdown(listener, SHUT_RDWR);
  engine.join();
  close(listener);
}

TEST_CASE("a folder too deep for a socket is refused before anything starts") {
  const TempFolder folder;
  const PrivateEngineOptions options{folder.path() + "/" + std::string(120, 'x'), {}};
  CHECK_THROWS_AS(EngineLease(options), Error);
  CHECK_FALSE(engine_running(options));
}
