#include "containers/engine_choice.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "containers/command.hpp"
#include "containers/paths.hpp"
#include "containers/private_engine.hpp"
#include "containers/processes.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

constexpr const char* kDefaultSocket = "/var/run/docker.sock";

EngineFacts::Socket look_at_socket(const std::string& path) {
  EngineFacts::Socket result;
  result.path = path;
  const int code = connect_error(path);
  result.permitted = code != EACCES;
  result.listens = code == 0;
  result.answers = result.listens && docker_answers(path);
  return result;
}

/// Seconds since a process began; a large number where that cannot be read.
double age_of(pid_t pid) {
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(stat, line);
  const auto name_end = line.rfind(") ");
  double up = 0;
  std::ifstream("/proc/uptime") >> up;
  constexpr std::size_t kStartField = 22 - 3;
  const auto fields =
      split(name_end == std::string::npos ? std::string() : line.substr(name_end + 2), ' ');
  if (fields.size() <= kStartField) return 1e9;
  return up - std::strtod(fields[kStartField].c_str(), nullptr) /
                  static_cast<double>(sysconf(_SC_CLK_TCK));
}

/// One inside a container or another network namespace (docker in docker, kind, a test's) makes its
/// bridges and rules there: ranks of it could not be reached from here, and it disturbs none of
/// ours.
bool shares_our_network(pid_t pid) {
  std::error_code error;
  const auto its = std::filesystem::read_symlink(fmt::format("/proc/{}/ns/net", pid), error);
  // Another user's may not be read: taken for one of this network.
  return error || its == std::filesystem::read_symlink("/proc/self/ns/net", error);
}

/// Sockets that running dockerds, but for our own, were started to listen on (-H unix://PATH).
std::vector<std::string> sockets_of_running_dockerds(bool& running, bool& starting) {
  std::vector<std::string> sockets;
  const PrivateEngineOptions ours = default_private_engine();
  for (const ProcessInfo& process : list_processes()) {
    // One that has ended, and waits for its parent to notice, has no command line any more.
    if (process.name != "dockerd" || process.argv.empty() || belongs_to_engine(process, ours))
      continue;
    // One of another cache's: never used without its locks.
    if (!folder_of_engine(process).empty()) continue;
    if (!shares_our_network(process.pid)) continue;
    running = true;
    constexpr double kStartsWithin_s = 30;
    starting = starting || age_of(process.pid) < kStartsWithin_s;
    for (const std::string& argument : process.argv)
      if (const auto at = argument.find("unix://"); at != std::string::npos)
        sockets.push_back(argument.substr(at + 7));
  }
  return sockets;
}

bool has_capability(int number) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("CapEff:", 0) == 0)
      return ((std::strtoull(line.c_str() + 7, nullptr, 16) >> number) & 1U) != 0;
  return false;
}

std::string user_name() {
  const passwd* entry = getpwuid(geteuid());
  return entry != nullptr ? entry->pw_name : std::to_string(geteuid());
}

Engine docker_at(const std::string& socket, bool is_private) {
  Engine engine;
  engine.socket = socket;
  engine.is_private = is_private;
  engine.command = {"docker"};
  // Without --host a DOCKER_HOST or a context of the user's would decide.
  if (socket != kDefaultSocket || std::getenv("DOCKER_HOST") != nullptr)
    engine.command = {"docker", "--host", "unix://" + socket};
  return engine;
}

Engine podman_here(const EngineFacts& facts) {
  Engine engine;
  engine.kind = EngineKind::podman;
  engine.command = {"podman"};
  if (facts.hybrid_cgroups) engine.run_flags = {"--runtime", "runc"};
  if (!facts.may_raise_limits)
    for (const char* limit : {"nofile=1024:1024", "nproc=4096:4096"})
      engine.run_flags.insert(engine.run_flags.end(), {"--ulimit", limit});
  return engine;
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// The program that sudo, doas or env starts, without its folder.
std::string program_behind(const std::vector<std::string>& command) {
  // Their options whose value is the next word.
  const std::set<std::string> with_value{"-u", "-g", "-U", "-C", "-D",     "-R",     "-T",
                                         "-h", "-p", "-r", "-t", "--user", "--group"};
  std::size_t at = 0;
  while (at < command.size()) {
    const std::string name = file_name(command[at]);
    if (name != "sudo" && name != "doas" && name != "env") return name;
    for (++at; at < command.size(); ++at) {
      const std::string& word = command[at];
      if (with_value.contains(word))
        ++at;
      else if (!word.starts_with("-") && word.find('=') == std::string::npos)
        break;
    }
  }
  return "";
}

std::string why_none(const EngineFacts& facts) {
  for (const auto& socket : facts.docker_sockets)
    if (!socket.permitted)
      return fmt::format(
          "user {} may not open the Docker socket {}: run `sudo usermod -aG docker {}` and log in "
          "again, or start dynamiccl with sudo",
          facts.user, socket.path, facts.user);
  if (!facts.remote_host.empty())
    return fmt::format(
        "DOCKER_HOST={} is not on this machine, but ranks must see this machine's folders: unset "
        "DOCKER_HOST",
        facts.remote_host);
  if (facts.dockerd_running)
    return fmt::format(
        "a dockerd runs here, so that no second one is started, but {}: name its socket with "
        "DOCKER_HOST=unix:///PATH (one that listens on TCP only needs "
        "\"unix:///var/run/docker.sock\" "
        "among the hosts of /etc/docker/daemon.json), or see its log: journalctl -u docker",
        facts.docker_sockets.empty() ? "its socket is at no known place"
                                     : "it does not answer on " + facts.docker_sockets.back().path);
  if (facts.podman && !facts.root)
    return "rootless Podman is not used (its network and ulimits differ from what profiles "
           "promise): run dynamiccl with sudo";
  if (facts.podman)
    return "Podman lacks its init program: apt-get install -y --no-install-recommends catatonit";
  if (facts.dockerd && !facts.root)
    return "Docker is installed, but no dockerd runs: sudo systemctl start docker (and be in group "
           "docker), or start dynamiccl with sudo";
  return fmt::format(
      "no container engine: {}apt-get install -y --no-install-recommends docker.io iptables",
      facts.root ? "" : "sudo ");
}

}  // namespace

EngineFacts look_at_machine() {
  EngineFacts facts;
  facts.private_socket = private_engine_socket(default_private_engine());
  std::vector<std::string> paths;
  const char* host = std::getenv("DOCKER_HOST");
  const std::string wanted = host != nullptr ? host : "";
  if (wanted.rfind("unix://", 0) == 0)
    paths.push_back(wanted.substr(7));
  else
    facts.remote_host = wanted;
  paths.emplace_back(kDefaultSocket);
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"))
    paths.push_back(std::string(runtime) + "/docker.sock");
  for (const std::string& path :
       sockets_of_running_dockerds(facts.dockerd_running, facts.dockerd_starting))
    paths.push_back(path);
  for (const std::string& path : paths) {
    // In a folder that is closed to this user there may be one: connecting shows it.
    std::error_code code;
    const bool there = std::filesystem::exists(path, code) || code.value() == EACCES;
    if (path != facts.private_socket && there) facts.docker_sockets.push_back(look_at_socket(path));
  }
  facts.docker_client = !find_program("docker").empty();
  facts.dockerd = !find_program("dockerd").empty();
  facts.podman = !find_program("podman").empty();
  facts.catatonit =
      !find_program("catatonit").empty() || access("/usr/libexec/podman/catatonit", X_OK) == 0;
  facts.root = is_root();
  constexpr int kCapSysResource = 24;
  facts.may_raise_limits = has_capability(kCapSysResource);
  facts.hybrid_cgroups = std::filesystem::exists("/sys/fs/cgroup/unified");
  facts.user = user_name();
  return facts;
}

EngineSearch choose_engine(const EngineFacts& seen) {
  EngineFacts facts = seen;
  for (const auto& socket : facts.docker_sockets)
    facts.dockerd_running = facts.dockerd_running || socket.listens;
  if (facts.docker_client && facts.remote_host.empty())
    for (const auto& socket : facts.docker_sockets)
      if (socket.answers) return {docker_at(socket.path, false), ""};
  const bool may_start = facts.docker_client && facts.dockerd && facts.root &&
                         !facts.dockerd_running && facts.remote_host.empty();
  if (may_start) return {docker_at(facts.private_socket, true), ""};
  if (facts.podman && facts.catatonit && facts.root) return {podman_here(facts), ""};
  const bool permitted = std::all_of(facts.docker_sockets.begin(), facts.docker_sockets.end(),
                                     [](const auto& socket) { return socket.permitted; });
  const bool silent = facts.dockerd_running && facts.docker_client && permitted &&
                      (!facts.docker_sockets.empty() || facts.dockerd_starting) &&
                      facts.remote_host.empty();
  return {std::nullopt, why_none(facts), silent};
}

Engine named_engine(const std::vector<std::string>& command) {
  Engine engine;
  engine.command = command;
  if (program_behind(command) == "podman") engine.kind = EngineKind::podman;
  return engine;
}

EngineSearch find_engine() { return choose_engine(look_at_machine()); }

}  // namespace dynamiccl
