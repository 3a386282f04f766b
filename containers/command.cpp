#include "containers/command.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>

#include "containers/program_start.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

using Clock = std::chrono::steady_clock;

pid_t spawn(const std::vector<std::string>& argv, const CommandOptions& options, const Pipe& out,
            const Pipe& err) {
  ProgramStart start;
  start.open(0, options.input_file.empty() ? "/dev/null" : options.input_file, O_RDONLY);
  if (options.output_file.empty()) {
    start.duplicate(out.write_end(), 1);
    start.duplicate(err.write_end(), 2);
  } else {
    start.open(1, options.output_file, O_WRONLY | O_CREAT | O_APPEND, 0644);
    start.duplicate(1, 2);
  }
  return start.run(argv, options.environment);
}

/// Appends what is readable; @returns false at the end of the stream
bool drain(int end, std::string& text) {
  std::array<char, 65536> buffer{};
  const ssize_t count = read(end, buffer.data(), buffer.size());
  if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
  return count > 0 || (count < 0 && errno == EINTR);
}

/// How long a command is waited for; notes in the result why no longer.
class Deadline {
 public:
  Deadline(std::chrono::milliseconds most, bool (*interrupted)())
      : deadline_(Clock::now() + most), interrupted_(interrupted) {}

  [[nodiscard]] bool ended(CommandResult& result) const {
    result.interrupted = interrupted_ != nullptr && interrupted_();
    result.timed_out = !result.interrupted && Clock::now() >= deadline_;
    return result.interrupted || result.timed_out;
  }
  /// Until the deadline, or until the next question whether to go on.
  [[nodiscard]] int poll_ms() const {
    constexpr std::chrono::milliseconds::rep kBetweenQuestions = 100;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
    return static_cast<int>(interrupted_ == nullptr ? left : std::min(left, kBetweenQuestions));
  }

 private:
  Clock::time_point deadline_;
  bool (*interrupted_)();
};

/// Reads both streams until both end; @returns false when the deadline came first
bool read_until(const Deadline& deadline, Pipe& out, Pipe& err, CommandResult& result) {
  bool out_open = true;
  bool err_open = true;
  while (out_open || err_open) {
    if (deadline.ended(result)) return false;
    std::array<pollfd, 2> watched{pollfd{out_open ? out.read_end() : -1, POLLIN, 0},
                                  pollfd{err_open ? err.read_end() : -1, POLLIN, 0}};
    if (poll(watched.data(), watched.size(), std::max(deadline.poll_ms(), 0)) < 0) {
      if (errno == EINTR) continue;
      result.timed_out = true;
      return false;
    }
    if (watched[0].revents != 0) out_open = drain(out.read_end(), result.out);
    if (watched[1].revents != 0) err_open = drain(err.read_end(), result.err);
  }
  return true;
}

/// @returns false when the child still runs at the deadline
bool wait_until(pid_t child, const Deadline& deadline, CommandResult& result) {
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
    if (deadline.ended(result)) return false;
    usleep(static_cast<useconds_t>(pause_us));
  }
}

/// Ends a child that is not to be waited for, with its whole group. An interrupted one may clean up
/// first.
void end_group(pid_t child, CommandResult& result) {
  CommandResult end;
  bool gone = false;
  if (result.interrupted) {
    kill(-child, SIGTERM);
    gone = wait_until(child, Deadline(std::chrono::seconds(5), nullptr), end);
  }
  kill(-child, SIGKILL);
  if (!gone) wait_until(child, Deadline(std::chrono::seconds(5), nullptr), end);
  result.exit_code = end.exit_code;
}

/// What a command that was ended had said, as far as a pipe holds it; others may still write there.
void read_rest(Pipe& out, Pipe& err, CommandResult& result) {
  std::array<pollfd, 2> watched{pollfd{out.read_end(), POLLIN, 0},
                                pollfd{err.read_end(), POLLIN, 0}};
  if (poll(watched.data(), watched.size(), 0) <= 0) return;
  if ((watched[0].revents & POLLIN) != 0) drain(out.read_end(), result.out);
  if ((watched[1].revents & POLLIN) != 0) drain(err.read_end(), result.err);
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
  const Deadline deadline(options.timeout, options.interrupted);
  Pipe out;
  Pipe err;
  const pid_t child = spawn(argv, options, out, err);
  out.close_end(1);
  err.close_end(1);
  CommandResult result;
  if (!read_until(deadline, out, err, result) || !wait_until(child, deadline, result)) {
    end_group(child, result);
    read_rest(out, err, result);
  }
  return result;
}

Error command_failure(const std::string& what, const std::vector<std::string>& argv,
                      const CommandOptions& options, const CommandResult& result) {
  constexpr ErrorKind kind = ErrorKind::environment;
  const std::string line = command_line(argv);
  if (result.interrupted) return {kind, fmt::format("{}: interrupted, `{}` was ended", what, line)};
  if (result.timed_out)
    return {kind, fmt::format("{}: `{}` did not end within {} s", what, line,
                              static_cast<double>(options.timeout.count()) / 1000.0)};
  return {kind, fmt::format("{}: `{}` failed with exit code {}: {}", what, line, result.exit_code,
                            last_lines(result.err.empty() ? result.out : result.err, 4))};
}

std::string checked_output(const std::string& what, const std::vector<std::string>& argv,
                           const CommandOptions& options) {
  const CommandResult result = run_command(argv, options);
  if (result.interrupted || result.timed_out || result.exit_code != 0)
    throw command_failure(what, argv, options, result);
  return std::string(trim(result.out));
}

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  const std::string folders =
      std::string(path != nullptr ? path : "/usr/bin:/bin") + ":/usr/sbin:/sbin";
  for (const std::string& folder : split(folders, ':')) {
    if (folder.empty()) continue;
    std::string candidate = fmt::format("{}/{}", folder, name);
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

std::string login_shell_line(const std::string& line) {
  constexpr std::string_view kPlain = " _@%+=:,./-";
  std::string encoded;
  for (const char c : line) {
    const auto byte = static_cast<unsigned char>(c);
    const bool letter = byte < 0x80 && std::isalnum(byte) != 0;
    encoded += letter || kPlain.find(c) != std::string_view::npos ? std::string(1, c)
                                                                  : fmt::format("\\0{:03o}", byte);
  }
  return fmt::format("exec /bin/sh -c 'eval \"$(printf %b \"$1\")\"' sh '{}'", encoded);
}

}  // namespace dynamiccl
