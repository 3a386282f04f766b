#include "containers/held_command.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/program_signals.hpp"

namespace dynamiccl {
namespace {

using Clock = std::chrono::steady_clock;

std::array<int, 2> pipe_ends() {
  std::array<int, 2> ends{-1, -1};
  // Nobody else whom this process starts may hold the input open.
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw Error(ErrorKind::environment,
                fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  return ends;
}

int spawn(const std::vector<std::string>& argv, const std::string& errors, int input, int output,
          pid_t* child) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&actions, input, 0);
  posix_spawn_file_actions_adddup2(&actions, output, 1);
  posix_spawn_file_actions_addopen(&actions, 2, errors.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                   0600);
  sigset_t none;
  sigemptyset(&none);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int signal : kChildDefaults) sigaddset(&defaults, signal);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<std::string> words = argv;
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const int code =
      posix_spawnp(child, words.front().c_str(), &actions, &attributes, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return code;
}

void close_end(int& end) {
  if (end >= 0) close(end);
  end = -1;
}

constexpr std::chrono::seconds kAfterSignal{5};

}  // namespace

HeldCommand::HeldCommand(const std::vector<std::string>& argv, const std::string& errors) {
  DYN_ASSERT(!argv.empty(), "a command needs a program");
  auto in = pipe_ends();
  auto out = pipe_ends();
  const int code = spawn(argv, errors, in[0], out[1], &child_);
  close(in[0]);
  close(out[1]);
  input_ = in[1];
  output_ = out[0];
  if (code == 0) return;
  close_end(input_);
  close_end(output_);
  throw Error(ErrorKind::environment,
              fmt::format("cannot start {}: {}", argv.front(), std::strerror(code)));
}

HeldCommand::HeldCommand(HeldCommand&& other) noexcept
    : child_(std::exchange(other.child_, -1)),
      input_(std::exchange(other.input_, -1)),
      output_(std::exchange(other.output_, -1)) {}

HeldCommand::~HeldCommand() { end(std::chrono::seconds(5)); }

std::optional<std::string> HeldCommand::read_line(const std::string& begin,
                                                  std::chrono::milliseconds most,
                                                  bool (*interrupted)()) {
  std::string text = "\n";
  const auto deadline = Clock::now() + most;
  for (;;) {
    const auto at = text.find("\n" + begin);
    const auto end = at == std::string::npos ? at : text.find('\n', at + 1);
    if (end != std::string::npos) return text.substr(at + 1, end - at - 1);
    if (Clock::now() >= deadline || (interrupted != nullptr && interrupted())) return std::nullopt;
    pollfd watched{output_, POLLIN, 0};
    if (poll(&watched, 1, 100) <= 0) continue;
    std::array<char, 4096> buffer{};
    const ssize_t count = read(output_, buffer.data(), buffer.size());
    if (count == 0 || (count < 0 && errno != EINTR)) return std::nullopt;
    if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

void HeldCommand::let_go() { close_end(input_); }

void HeldCommand::collect(Clock::time_point deadline) {
  while (child_ >= 0) {
    const pid_t ended = waitpid(child_, nullptr, WNOHANG);
    if (ended == child_ || (ended < 0 && errno != EINTR))
      child_ = -1;
    else if (Clock::now() >= deadline)
      return;
    else
      usleep(5000);
  }
}

void HeldCommand::end_these(const std::vector<HeldCommand*>& commands,
                            std::chrono::milliseconds most) {
  for (HeldCommand* one : commands) one->let_go();
  auto deadline = Clock::now() + most;
  for (HeldCommand* one : commands) one->collect(deadline);
  for (const int signal : {SIGTERM, SIGKILL}) {
    for (const HeldCommand* one : commands)
      if (one->child_ >= 0) kill(-one->child_, signal);
    deadline = Clock::now() + kAfterSignal;
    for (HeldCommand* one : commands) one->collect(deadline);
  }
  for (HeldCommand* one : commands) {
    one->child_ = -1;
    close_end(one->output_);
  }
}

void HeldCommand::end(std::chrono::milliseconds most) { end_these({this}, most); }

void HeldCommand::end_all(std::vector<HeldCommand>& commands, std::chrono::milliseconds most) {
  std::vector<HeldCommand*> all;
  for (HeldCommand& one : commands) all.push_back(&one);
  end_these(all, most);
}

}  // namespace dynamiccl
