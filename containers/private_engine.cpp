#include "containers/private_engine.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <utility>

#include "containers/command.hpp"
#include "containers/engine.hpp"
#include "containers/network_traces.hpp"
#include "containers/paths.hpp"
#include "containers/processes.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/file_descriptor.hpp"
#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/program_signals.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

class FileLock {
 public:
  FileLock(const std::string& path, int operation)
      : handle_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    int code = !handle_.valid() ? errno : 0;
    while (handle_.valid() && flock(handle_.get(), operation) != 0)
      if (code = errno; code != EINTR) break;
    if (!handle_.valid() || code == EBADF || code == ENOLCK)
      throw Error(ErrorKind::environment,
                  fmt::format("cannot lock {}: {}", path, std::strerror(code)));
    held_ = code == 0 || code == EINTR;
  }
  [[nodiscard]] bool held() const { return held_; }
  int release_handle() { return handle_.release(); }

 private:
  FileDescriptor handle_;
  bool held_ = false;
};

/// A second Ctrl-C, of somebody who does not wait for the end, must not leave half an engine: it
/// counts afterwards. Commands that are started meanwhile have no signal blocked.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigset_t ends;
    sigemptyset(&ends);
    for (const int signal : kEndSignals) sigaddset(&ends, signal);
    pthread_sigmask(SIG_BLOCK, &ends, &before_);
  }
  ~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t before_{};
};

bool wait_for(milliseconds timeout, const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;; usleep(20000)) {
    // The clock first: who was held up in between looks once more.
    const bool late = std::chrono::steady_clock::now() >= deadline;
    if (condition()) return true;
    if (late) return false;
  }
}

/// How long an engine is asked again that is to be used, and one that is to end anyway.
constexpr milliseconds kUntilItAnswers{30000};
constexpr milliseconds kUntilItEnds{3000};

/// Whether the engine is there. On a busy machine it may take its time to answer: while somebody
/// listens it is asked again, as who takes it for dead ends it for all that use it.
bool engine_answers(const std::string& socket, milliseconds timeout = kUntilItAnswers,
                    bool (*interrupted)() = nullptr) {
  bool answers = false;
  bool given_up = false;
  wait_for(timeout, [&] {
    answers = docker_answers(socket);
    given_up = interrupted != nullptr && interrupted();
    return answers || given_up || connect_error(socket) != 0;
  });
  if (!answers && given_up)
    throw Error(ErrorKind::environment, "interrupted while a private dockerd was asked");
  return answers;
}

/// `setsid`, `env` and the like, which are dockerd a moment later.
bool becomes_dockerd(const ProcessInfo& process) {
  const auto at = std::find(process.argv.begin(), process.argv.end(), "dockerd");
  return at != process.argv.end() && at + 1 != process.argv.end() && *(at + 1) == "--data-root";
}

/// dockerd, what is about to become it, and what it has started (containerd, shims): all have
/// our folder on their command line.
std::vector<ProcessInfo> engine_processes(const PrivateEngineOptions& options) {
  std::vector<ProcessInfo> ours;
  for (ProcessInfo& process : list_processes()) {
    const bool engine = process.name == "dockerd" || process.name == "containerd" ||
                        process.name.rfind("containerd-shim", 0) == 0 ||
                        process.name == "docker-proxy" || becomes_dockerd(process);
    if (engine && belongs_to_engine(process, options)) ours.push_back(std::move(process));
  }
  return ours;
}

/// Ids of the engine's containers, as far as its folders still name them.
std::set<std::string> container_ids(const PrivateEngineOptions& options) {
  constexpr std::size_t kIdLength = 64;
  std::set<std::string> ids;
  for (const char* folder :
       {"/data/containers", "/exec/containerd/daemon/io.containerd.runtime.v2.task/moby"}) {
    std::error_code code;
    for (fs::directory_iterator at(options.folder + folder, code), end; !code && at != end;
         at.increment(code))
      if (const std::string id = at->path().filename().string(); id.size() == kIdLength)
        ids.insert(id);
  }
  return ids;
}

/// Processes in the control groups of the engine's containers: they outlive shims that are killed.
std::vector<ProcessInfo> contained_processes(const std::set<std::string>& ids) {
  std::vector<ProcessInfo> found;
  if (ids.empty()) return found;
  for (ProcessInfo& process : list_processes()) {
    const std::string text = file_text(fmt::format("/proc/{}/cgroup", process.pid));
    if (text.find("docker") != std::string::npos &&
        std::any_of(ids.begin(), ids.end(),
                    [&](const std::string& id) { return text.find(id) != std::string::npos; }))
      found.push_back(std::move(process));
  }
  return found;
}

void end_contained(const PrivateEngineOptions& options) {
  const auto ids = container_ids(options);
  wait_for(milliseconds(5000), [&] {
    const auto left = contained_processes(ids);
    for (const ProcessInfo& process : left) kill(process.pid, SIGKILL);
    return left.empty();
  });
}

void end_processes(const PrivateEngineOptions& options) {
  const auto all_gone = [&] { return engine_processes(options).empty(); };
  std::set<pid_t> told;  // once: at its third signal dockerd leaves everything as it is
  const auto ends = [&] {
    const auto left = engine_processes(options);
    for (const ProcessInfo& process : left)
      if (process.name == "dockerd" && told.insert(process.pid).second) kill(process.pid, SIGTERM);
    return left.empty();
  };
  if (wait_for(milliseconds(15000), ends)) return;
  for (const ProcessInfo& process : engine_processes(options)) kill(process.pid, SIGKILL);
  wait_for(milliseconds(5000), all_gone);
}

/// Calls the engine's client with `remove` and what `list` names, if anything.
void remove_listed(const PrivateEngineOptions& options, const std::vector<std::string>& list,
                   const std::vector<std::string>& remove) {
  const Engine engine{EngineKind::docker,
                      {"docker", "--host", "unix://" + private_engine_socket(options)},
                      private_engine_socket(options),
                      {},
                      true};
  auto argv = engine_argv(engine, remove);
  const auto before = argv.size();
  for (const std::string& id :
       split(std::string(trim(run_command(engine_argv(engine, list)).out)), '\n'))
    if (!id.empty()) argv.push_back(id);
  if (argv.size() > before) run_command(argv);
}

/// Removed first, containers leave no mount to clear. A network that is not removed leaves its
/// bridge, and dockerd makes it again at its next start.
void remove_containers(const PrivateEngineOptions& options) {
  remove_listed(options, {"ps", "--all", "--quiet"}, {"rm", "--force", "--volumes"});
  remove_listed(options, {"network", "ls", "--quiet", "--filter", "type=custom"},
                {"network", "rm"});
}

std::string network_note(const PrivateEngineOptions& options) {
  return options.folder + "/network-before.json";
}

/// With a network namespace of its own the engine changes nothing of ours.
bool uses_our_network(const PrivateEngineOptions& options) { return options.prefix.empty(); }

/// Bridges and chains of two dockerds have the same names.
bool another_dockerd_runs(const PrivateEngineOptions& options) {
  const auto all = list_processes();
  return std::any_of(all.begin(), all.end(), [&](const ProcessInfo& process) {
    return process.name == "dockerd" && !process.argv.empty() &&
           !belongs_to_engine(process, options);
  });
}

/// Leaves the images (data/) and the locks.
std::vector<std::string> clear_traces(const PrivateEngineOptions& options) {
  wait_for(milliseconds(200), [&] {
    const auto mounts = mounts_below(options.folder);
    for (const std::string& mount : mounts) umount2(mount.c_str(), MNT_DETACH);
    return mounts.empty();
  });
  std::error_code ignored;
  for (const char* name : {"exec", "tmp", "s.sock", "pid"})
    fs::remove_all(options.folder + "/" + name, ignored);
  if (!uses_our_network(options)) return {};
  if (!another_dockerd_runs(options)) return restore_network(network_note(options));
  fs::remove(network_note(options), ignored);  // what it has noted is the other one's by now
  return {};
}

/// @returns what of the machine's network was brought back
std::vector<std::string> stop_engine(const PrivateEngineOptions& options) {
  if (engine_answers(private_engine_socket(options), kUntilItEnds)) remove_containers(options);
  end_processes(options);
  end_contained(options);
  return clear_traces(options);
}

std::string log_tail(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  constexpr std::size_t kLines = 3;
  if (lines.size() > kLines) lines.erase(lines.begin(), lines.end() - kLines);
  return join(lines, "; ");
}

/// After a dead engine the new one finds its containers through their shims, and ends them.
void start_engine(const PrivateEngineOptions& options, bool (*interrupted)() = nullptr) {
  const std::string log = options.folder + "/log";
  std::error_code ignored;
  if (uses_our_network(options)) note_network(network_note(options));
  for (const ProcessInfo& process : engine_processes(options))
    if (process.name == "dockerd" || process.name == "containerd") kill(process.pid, SIGKILL);
  // A pid file of a zombie would make dockerd wait for it.
  for (const char* stale : {"log", "pid", "s.sock", "exec/containerd/containerd.pid"})
    fs::remove(options.folder + "/" + stale, ignored);
  // Forked away: the engine outlives this process when another one still has a share.
  std::vector<std::string> argv{"setsid", "--fork"};
  argv.insert(argv.end(), options.prefix.begin(), options.prefix.end());
  // A containerd that does not answer is asked for its stacks, and writes them to a temporary file.
  const std::string temporary = options.folder + "/tmp";
  fs::create_directory(temporary, ignored);
  argv.insert(argv.end(),
              {"env", "TMPDIR=" + temporary, "dockerd", "--data-root", options.folder + "/data",
               "--exec-root", options.folder + "/exec", "--host",
               "unix://" + private_engine_socket(options), "--pidfile", options.folder + "/pid"});
  CommandOptions start;
  start.output_file = log;
  checked_output("cannot start a private dockerd", argv, start);
  bool given_up = false;
  wait_for(milliseconds(30000), [&] {
    given_up = interrupted != nullptr && interrupted();
    return given_up || docker_answers(private_engine_socket(options));
  });
  if (!given_up && docker_answers(private_engine_socket(options))) return;
  stop_engine(options);
  if (given_up)
    throw Error(ErrorKind::environment,
                "interrupted while the private dockerd started: it was ended");
  throw Error(ErrorKind::environment,
              fmt::format("the private dockerd does not answer within 30 s; end of {}: {}", log,
                          log_tail(log)));
}

bool in_our_network(pid_t pid) {
  std::error_code error;
  const auto theirs = fs::read_symlink(fmt::format("/proc/{}/ns/net", pid), error);
  return !error && theirs == fs::read_symlink("/proc/self/ns/net", error);
}

std::string lock_path(const PrivateEngineOptions& options, const char* name) {
  return options.folder + "/" + name;
}

}  // namespace

PrivateEngineOptions default_private_engine() {
  const PrivateEngineOptions own{cache_folder() + "/docker", {}};
  if (!is_root() || engine_running(own)) return own;
  // Two dockerds in one network namespace would undo each other's bridges and chains: the engine
  // of another cache is shared, under its own locks, like one of ours.
  for (const ProcessInfo& process : list_processes()) {
    if (process.name != "dockerd" || !in_our_network(process.pid)) continue;
    const std::string folder = folder_of_engine(process);
    if (!folder.empty() && folder != own.folder) return {folder, {}};
  }
  return own;
}

std::string folder_of_engine(const ProcessInfo& process) {
  const auto value = [&](std::string_view option) -> std::string {
    for (std::size_t i = 0; i + 1 < process.argv.size(); ++i)
      if (process.argv[i] == option) return process.argv[i + 1];
    return "";
  };
  const std::string data = value("--data-root");
  if (!data.ends_with("/data")) return "";
  const std::string folder = data.substr(0, data.size() - 5);
  const bool ours = value("--exec-root") == folder + "/exec" &&
                    value("--host") == "unix://" + folder + "/s.sock" &&
                    value("--pidfile") == folder + "/pid";
  struct stat status {};
  const bool locked = lstat((folder + "/users.lock").c_str(), &status) == 0 &&
                      S_ISREG(status.st_mode) && status.st_uid == geteuid();
  return ours && locked ? folder : "";
}

std::string private_engine_socket(const PrivateEngineOptions& options) {
  return options.folder + "/s.sock";
}

bool belongs_to_engine(const ProcessInfo& process, const PrivateEngineOptions& options) {
  return std::any_of(process.argv.begin(), process.argv.end(), [&](const std::string& argument) {
    return argument.find(options.folder + "/") != std::string::npos;
  });
}

bool engine_running(const PrivateEngineOptions& options) {
  return !engine_processes(options).empty();
}

EngineLease::EngineLease(PrivateEngineOptions options, bool (*interrupted)())
    : options_(std::move(options)) {
  constexpr std::size_t kLongestSocketPath = 107;
  if (socket().size() > kLongestSocketPath)
    throw Error(ErrorKind::environment,
                fmt::format("the path {} is too long for a socket ({} bytes at most): set "
                            "DYNAMICCL_CACHE to a shorter folder",
                            socket(), kLongestSocketPath));
  std::error_code code;
  fs::create_directories(options_.folder, code);
  if (code)
    throw Error(ErrorKind::environment,
                fmt::format("cannot make {}: {}", options_.folder, code.message()));
  chmod(options_.folder.c_str(), 0711);
  const FileLock turn(lock_path(options_, "start.lock"), LOCK_EX);
  if (!engine_answers(socket(), kUntilItAnswers, interrupted)) start_engine(options_, interrupted);
  users_lock_ = FileLock(lock_path(options_, "users.lock"), LOCK_SH).release_handle();
}

void EngineLease::bring_back(bool (*interrupted)()) {
  if (docker_answers(socket())) return;
  const FileLock turn(lock_path(options_, "start.lock"), LOCK_EX);
  if (!engine_answers(socket(), kUntilItAnswers, interrupted)) start_engine(options_, interrupted);
}

EngineLease::~EngineLease() {
  const SignalsHeld held;
  try {
    const FileLock turn(lock_path(options_, "start.lock"), LOCK_EX);
    close(users_lock_);
    if (FileLock(lock_path(options_, "users.lock"), LOCK_EX | LOCK_NB).held())
      stop_engine(options_);
  } catch (const std::exception&) {
    // The lock files are gone: whoever removed them has taken the engine over.
  }
}

void hold_private_engine(bool (*interrupted)()) {
  // Lives as long as the process: see the header.
  static EngineLease lease(default_private_engine(), interrupted);
  lease.bring_back(interrupted);
}

std::vector<std::string> stop_abandoned_engine(const PrivateEngineOptions& options) {
  std::vector<std::string> removed;
  // A cache that this user may not look into (another one's HOME) holds nothing of theirs.
  std::error_code unseen;
  if (!fs::exists(lock_path(options, "start.lock"), unseen)) return removed;
  const FileLock turn(lock_path(options, "start.lock"), LOCK_EX);
  const FileLock users(lock_path(options, "users.lock"), LOCK_EX | LOCK_NB);
  if (!users.held()) return removed;
  for (const ProcessInfo& process : engine_processes(options))
    removed.push_back(fmt::format("process {} {}", process.pid, process.name));
  for (const ProcessInfo& process : contained_processes(container_ids(options)))
    removed.push_back(fmt::format("process {} {} of a container", process.pid, process.name));
  for (const std::string& mount : mounts_below(options.folder)) removed.push_back("mount " + mount);
  const bool headless = engine_running(options) && !engine_answers(private_engine_socket(options));
  if (headless) start_engine(options);
  const bool traces = fs::exists(private_engine_socket(options), unseen) ||
                      fs::exists(network_note(options), unseen);
  if (!removed.empty() || traces)
    for (const std::string& line : stop_engine(options)) removed.push_back(line);
  return removed;
}

}  // namespace dynamiccl
