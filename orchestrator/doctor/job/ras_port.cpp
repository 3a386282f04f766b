#include "orchestrator/doctor/job/ras_port.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>

#include "core/vocabulary/file_descriptor.hpp"
#include "orchestrator/doctor/job/logged_job.hpp"
#include "orchestrator/doctor/job/process_files.hpp"

namespace dynamiccl {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kInAll{3000};
// A rank that is stopped accepts, as the kernel does it for it, and never answers.
constexpr std::chrono::milliseconds kForOne{1400};
constexpr std::size_t kMostBytes = std::size_t{32} << 20;
// RAS itself waits as long for ranks that do not answer it; its own number would be 5 s.
constexpr std::string_view kQuestion =
    "client protocol 2\ntimeout 1\nset format json\nverbose status\n";

struct Limit {
  Clock::time_point until;
  const std::function<bool()>& stopped;
};

/// Until a descriptor is ready. @returns whether it is in time
bool wait_for(int descriptor, short events, const Limit& limit) {
  constexpr int kSliceMs = 100;
  pollfd one{descriptor, events, 0};
  while (Clock::now() < limit.until && !limit.stopped())
    if (const int ready = poll(&one, 1, kSliceMs); ready != 0) return ready == 1;
  return false;
}

FileDescriptor connect_to(const RasTarget& target, const Limit& limit) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(target.host.c_str(), target.port.c_str(), &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  for (const auto* one = found; one != nullptr; one = one->ai_next) {
    FileDescriptor connection(
        socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!connection.valid()) continue;
    if (connect(connection.get(), one->ai_addr, one->ai_addrlen) == 0) return connection;
    int error = 0;
    socklen_t size = sizeof error;
    if (errno == EINPROGRESS && wait_for(connection.get(), POLLOUT, limit) &&
        getsockopt(connection.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0)
      return connection;
  }
  return {};
}

/// What is answered up to the connection's end; "" = nothing whole in time.
std::string talk_to(const RasTarget& target, const Limit& limit) {
  const auto connection = connect_to(target, limit);
  if (!connection.valid() || send(connection.get(), kQuestion.data(), kQuestion.size(),
                                  MSG_NOSIGNAL) != static_cast<ssize_t>(kQuestion.size()))
    return "";
  std::string answer;
  char part[4096];
  while (answer.size() < kMostBytes && wait_for(connection.get(), POLLIN, limit)) {
    const auto got = recv(connection.get(), part, sizeof part, 0);
    if (got == 0) return answer;
    if (got < 0 && errno != EINTR && errno != EAGAIN) return "";
    if (got > 0) answer.append(part, static_cast<std::size_t>(got));
  }
  return "";
}

/// Into the network namespace of a process, where this thread then stays. @returns why not
std::string enter_network_of(pid_t pid) {
  const auto path = fmt::format("/proc/{}/ns/net", pid);
  std::error_code none;
  if (std::filesystem::read_symlink(path, none) ==
      std::filesystem::read_symlink("/proc/thread-self/ns/net", none))
    return "";
  const FileDescriptor space(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (space.valid() && setns(space.get(), CLONE_NEWNET) == 0) return "";
  return fmt::format("the network of process {} cannot be entered ({}): root may", pid,
                     std::strerror(errno));
}

/// An answer with the job's numbers of ranks for a communicator's.
RasAnswer by_ranks(const RasAnswer& answer, const std::vector<RasTarget>& targets, bool& ours) {
  std::map<int, int> numbers;
  for (const auto& [rank, process] : answer.processes)
    for (const auto& target : targets)
      if (process.pid == target.inner_pid) numbers[rank] = target.rank;
  ours = !numbers.empty();
  // Of whom nothing is known here keeps the number that it has in the whole job's communicator.
  const bool whole = std::all_of(numbers.begin(), numbers.end(),
                                 [](const auto& one) { return one.first == one.second; });
  RasAnswer found{answer.communicator, {}, {}, {}};
  const auto add = [&](const auto& from, auto& to) {
    for (const auto& [rank, value] : from)
      if (const auto known = numbers.find(rank); known != numbers.end())
        to[known->second] = value;
      else if (whole)
        to[rank] = value;
  };
  add(answer.launched, found.launched);
  add(answer.missing, found.missing);
  add(answer.processes, found.processes);
  return found;
}

}  // namespace

std::vector<RasTarget> ras_targets(const LiveJob& job) {
  std::vector<RasTarget> targets;
  for (const auto& rank : job.ranks) {
    if (!rank.on_gpu) continue;
    RasTarget target{rank.rank, rank.pid, rank.inner_pid};
    const auto variables = variables_of(rank.pid);
    if (const auto named = variables.find("NCCL_RAS_ADDR"); named != variables.end())
      if (const auto colon = named->second.rfind(':'); colon != std::string::npos) {
        target.host = named->second.substr(0, colon);
        target.port = named->second.substr(colon + 1);
        if (target.host.starts_with('[') && target.host.ends_with(']'))
          target.host = target.host.substr(1, target.host.size() - 2);
      }
    targets.push_back(std::move(target));
  }
  return targets;
}

RasLook ask_ras(const std::vector<RasTarget>& targets, const std::function<bool()>& stopped) {
  RasLook look;
  const auto end = Clock::now() + kInAll;
  constexpr std::size_t kTries = 4;
  for (std::size_t i = 0; i < kTries && !targets.empty() && Clock::now() < end && !stopped(); ++i) {
    const auto& target = targets[i % targets.size()];
    look.problem = enter_network_of(target.pid);
    if (!look.problem.empty()) continue;
    const auto text = talk_to(target, {std::min(Clock::now() + kForOne, end), stopped});
    LoggedJob read;
    // What was asked is confirmed line by line before the answer.
    if (const auto begin = text.find('{'); begin != std::string::npos)
      if (const auto answer = parse_ras_answer(std::string_view(text).substr(begin));
          !answer.is_discarded())
        read_ras_answer(read, answer);
    for (const auto& answer : read.ras) {
      bool ours = false;
      auto translated = by_ranks(answer, targets, ours);
      if (ours) look.answers.push_back(std::move(translated));
    }
    if (!look.answers.empty()) return look;
    look.problem = fmt::format("NCCL's RAS at {}:{} {}", target.host, target.port,
                               text.empty()       ? "does not answer"
                               : read.ras.empty() ? "does not know JSON, which 2.28 brought"
                                                  : "answers for another job");
  }
  return look;
}

}  // namespace dynamiccl
