#include "containers/command.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/error.hpp"
#include "core/text.hpp"

namespace dynamiccl {
namespace {

using Clock = std::chrono::steady_clock;

class Pipe {
 public:
  Pipe() {
    if (pipe2(ends_.data(), O_CLOEXEC) != 0)
      throw Error(ErrorKind::environment,
                  fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  [[nodiscard]] int read_end() const { return ends_[0]; }
  [[nodiscard]] int write_end() const { return ends_[1]; }
  void close_end(int which) {
    int& end = ends_.at(static_cast<std::size_t>(which));
    if (end >= 0) close(end);
    end = -1;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& added) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!added.contains(text.substr(0, text.find('=')))) merged.push_back(text);
  }
  for (const auto& [name, value] : added) merged.push_back(name + "=" + value);
  return merged;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

/// posix_spawn's two C structures, freed on every path.
class SpawnPlan {
 public:
  SpawnPlan() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    sigset_t defaults;
    sigemptyset(&defaults);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD})
      sigaddset(&defaults, signal);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  posix_spawn_file_actions_t actions{};
  posix_spawnattr_t attributes{};
};

pid_t spawn(const std::vector<std::string>& argv, const CommandOptions& options, const Pipe& out,
            const Pipe& err) {
  SpawnPlan plan;
  posix_spawn_file_actions_addopen(&plan.actions, 0, "/dev/null", O_RDONLY, 0);
  if (options.output_file.empty()) {
    posix_spawn_file_actions_adddup2(&plan.actions, out.write_end(), 1);
    posix_spawn_file_actions_adddup2(&plan.actions, err.write_end(), 2);
  } else {
    posix_spawn_file_actions_addopen(&plan.actions, 1, options.output_file.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0644);
    posix_spawn_file_actions_adddup2(&plan.actions, 1, 2);
  }
  std::vector<std::string> arguments = argv;
  std::vector<std::string> environment = merged_environment(options.environment);
  pid_t child = -1;
  const int code = posix_spawnp(&child, argv.front().c_str(), &plan.actions, &plan.attributes,
                                pointers(arguments).data(), pointers(environment).data());
  if (code != 0)
    throw Error(ErrorKind::environment,
                fmt::format("cannot start {}: {}", argv.front(), std::strerror(code)));
  return child;
}

/// Appends what is readable; @returns false at the end of the stream
bool drain(int end, std::string& text) {
  std::array<char, 65536> buffer{};
  const ssize_t count = read(end, buffer.data(), buffer.size());
  if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
  return count > 0 || (count < 0 && errno == EINTR);
}

/// Reads both streams until both end or the deadline; @returns false at the deadline
bool read_until(Clock::time_point deadline, Pipe& out, Pipe& err, CommandResult& result) {
  bool out_open = true;
  bool err_open = true;
  while (out_open || err_open) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    std::array<pollfd, 2> watched{pollfd{out_open ? out.read_end() : -1, POLLIN, 0},
                                  pollfd{err_open ? err.read_end() : -1, POLLIN, 0}};
    if (poll(watched.data(), watched.size(), static_cast<int>(left)) < 0 && errno != EINTR)
      return false;
    if (watched[0].revents != 0) out_open = drain(out.read_end(), result.out);
    if (watched[1].revents != 0) err_open = drain(err.read_end(), result.err);
  }
  return true;
}

/// @returns false when the child still runs at the deadline
bool wait_until(pid_t child, Clock::time_point deadline, CommandResult& result) {
  for (int pause_us = 200;; pause_us = std::min(pause_us * 2, 20000)) {
    int status = 0;
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child || (ended < 0 && errno != EINTR)) {
      if (ended == child)
        result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      else  // somebody else in this process has collected it
        result.exit_code = -1;
      return true;
    }
    if (Clock::now() >= deadline) return false;
    usleep(static_cast<useconds_t>(pause_us));
  }
}

std::string last_lines(const std::string& text, std::size_t count) {
  std::vector<std::string> lines;
  for (const std::string& line : split(text, '\n'))
    if (!trim(line).empty()) lines.emplace_back(trim(line));
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<long>(count));
  return join(lines, "; ");
}

}  // namespace

CommandResult run_command(const std::vector<std::string>& argv, const CommandOptions& options) {
  DYN_ASSERT(!argv.empty(), "a command needs a program");
  const auto deadline = Clock::now() + options.timeout;
  Pipe out;
  Pipe err;
  const pid_t child = spawn(argv, options, out, err);
  out.close_end(1);
  err.close_end(1);
  CommandResult result;
  if (!read_until(deadline, out, err, result) || !wait_until(child, deadline, result)) {
    result.timed_out = true;
    kill(-child, SIGKILL);
    wait_until(child, Clock::now() + std::chrono::seconds(5), result);
  }
  return result;
}

std::string checked_output(const std::string& what, const std::vector<std::string>& argv,
                           const CommandOptions& options) {
  const CommandResult result = run_command(argv, options);
  if (result.timed_out)
    throw Error(ErrorKind::environment,
                fmt::format("{}: `{}` did not end within {} s", what, command_line(argv),
                            static_cast<double>(options.timeout.count()) / 1000.0));
  if (result.exit_code != 0)
    throw Error(
        ErrorKind::environment,
        fmt::format("{}: `{}` failed with exit code {}: {}", what, command_line(argv),
                    result.exit_code, last_lines(result.err.empty() ? result.out : result.err, 4)));
  return std::string(trim(result.out));
}

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  const std::string folders =
      std::string(path != nullptr ? path : "/usr/bin:/bin") + ":/usr/sbin:/sbin";
  for (const std::string& folder : split(folders, ':')) {
    if (folder.empty()) continue;
    const std::string candidate = folder + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

std::string command_line(const std::vector<std::string>& argv) {
  std::vector<std::string> quoted;
  quoted.reserve(argv.size());
  for (const std::string& argument : argv) quoted.push_back(shell_quote(argument));
  return join(quoted, " ");
}

}  // namespace dynamiccl
