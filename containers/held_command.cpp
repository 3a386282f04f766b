#include "containers/held_command.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "containers/program_start.hpp"

namespace dynamiccl {
namespace {

using Clock = std::chrono::steady_clock;

void close_end(int& end) {
  if (end >= 0) close(end);
  end = -1;
}

constexpr std::chrono::seconds kAfterSignal{5};

}  // namespace

HeldCommand::HeldCommand(const std::vector<std::string>& argv, const std::string& errors) {
  // Nobody else whom this process starts may hold the input open.
  Pipe in;
  Pipe out;
  ProgramStart start;
  start.duplicate(in.read_end(), 0);
  start.duplicate(out.write_end(), 1);
  start.open(2, errors, O_WRONLY | O_CREAT | O_APPEND, 0600);
  child_ = start.run(argv, {});
  input_ = in.release(1);
  output_ = out.release(0);
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

bool HeldCommand::is_silent() const {
  pollfd watched{output_, 0, 0};
  return poll(&watched, 1, 0) > 0 && (watched.revents & POLLHUP) != 0;
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
