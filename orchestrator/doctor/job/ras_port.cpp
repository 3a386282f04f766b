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
#include <set>
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
constexpr std::size_t kMostBytes = std::size_t{8} << 20;
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

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
};

/// None where the host is a name other than this machine's own.
std::vector<Address> addresses_of(const RasTarget& target) {
  std::vector<std::string> hosts{target.host};
  if (target.host == "localhost") hosts = {"127.0.0.1", "::1"};
  std::vector<Address> addresses;
  for (const auto& host : hosts) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    if (getaddrinfo(host.c_str(), target.port.c_str(), &hints, &found) != 0) continue;
    Address address;
    address.size = std::min<socklen_t>(found->ai_addrlen, sizeof address.bytes);
    std::memcpy(&address.bytes, found->ai_addr, address.size);
    addresses.push_back(address);
    freeaddrinfo(found);
  }
  return addresses;
}

FileDescriptor connect_to(const std::vector<Address>& addresses, const Limit& limit) {
  for (const auto& one : addresses) {
    FileDescriptor connection(
        socket(one.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!connection.valid()) continue;
    if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&one.bytes), one.size) == 0)
      return connection;
    int error = 0;
    socklen_t size = sizeof error;
    if (errno == EINPROGRESS && wait_for(connection.get(), POLLOUT, limit) &&
        getsockopt(connection.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0)
      return connection;
  }
  return {};
}

/// What is answered up to the connection's end; "" = nothing whole in time.
std::string talk_to(const std::vector<Address>& addresses, const Limit& limit) {
  const auto connection = connect_to(addresses, limit);
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

/// The job's numbers of a communicator's ranks, by their processes. Two that count their processes
/// in namespaces of their own may name the same one: then its rank in the whole job's communicator
/// decides.
std::map<int, int> numbers_in(const RasAnswer& answer, const std::vector<RasTarget>& targets) {
  std::map<pid_t, std::vector<int>> ranks, own;
  for (const auto& [rank, process] : answer.processes) ranks[process.pid].push_back(rank);
  for (const auto& target : targets) own[target.inner_pid].push_back(target.rank);
  std::map<int, int> numbers;
  for (const auto& target : targets) {
    const auto& same = ranks[target.inner_pid];
    if (same.size() == 1 && own[target.inner_pid].size() == 1)
      numbers[same.front()] = target.rank;
    else if (answer.size > 0 && answer.size == target.world &&
             std::find(same.begin(), same.end(), target.rank) != same.end())
      numbers[target.rank] = target.rank;
  }
  return numbers;
}

/// An answer with the job's numbers of ranks for a communicator's.
RasAnswer by_ranks(const RasAnswer& answer, const std::vector<RasTarget>& targets, bool& ours) {
  const auto numbers = numbers_in(answer, targets);
  ours = !numbers.empty();
  // Of whom nothing is known here keeps the number that it has in the whole job's communicator.
  const bool whole = answer.size > 0 && answer.size == targets.front().world &&
                     std::all_of(numbers.begin(), numbers.end(),
                                 [](const auto& one) { return one.first == one.second; });
  RasAnswer found{answer.communicator, {}, {}, {}, answer.size};
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

/// Takes from an answer what is of these ranks. @returns why nothing is; "" = something is
std::string read_answer(const std::string& text, const std::vector<RasTarget>& targets,
                        std::vector<RasAnswer>& found) {
  if (text.empty()) return "does not answer";
  // What was asked is confirmed line by line before the answer.
  const auto begin = text.find('{');
  if (begin == std::string::npos) return "does not know JSON, which 2.28 brought";
  const auto answer = parse_ras_answer(std::string_view(text).substr(begin));
  if (answer.is_discarded()) return "breaks its answer off";
  LoggedJob read;
  read_ras_answer(read, answer);
  for (const auto& one : read.ras) {
    bool ours = false;
    auto translated = by_ranks(one, targets, ours);
    if (ours) found.push_back(std::move(translated));
  }
  if (read.ras.empty()) return "knows of no communicator";
  return found.empty() ? "answers for another job" : "";
}

/// Ranks that RAS misses and that are over: it says so, or the process is not on this machine,
/// though others of its host are.
std::vector<int> ranks_over(const LiveJob& job) {
  std::set<int> over;
  std::set<pid_t> alive;
  for (const auto& answer : job.ras) {
    if (answer.missing.empty()) continue;
    if (alive.empty())
      for (const auto& one : all_processes())
        if (one.state != 'Z') alive.insert(pid_inside(one.pid));
    std::set<std::string> here;
    for (const auto& rank : job.ranks)
      if (const auto found = answer.processes.find(rank.rank);
          found != answer.processes.end() && answer.launched.contains(rank.rank))
        here.insert(found->second.host);
    for (const auto& [rank, missing] : answer.missing) {
      const auto lost = answer.processes.find(rank);
      if (missing.dead || (lost != answer.processes.end() && here.contains(lost->second.host) &&
                           !alive.contains(lost->second.pid)))
        over.insert(rank);
    }
  }
  return {over.begin(), over.end()};
}

}  // namespace

std::vector<RasTarget> ras_targets(const LiveJob& job) {
  std::vector<RasTarget> targets;
  for (const auto& rank : job.ranks) {
    if (!rank.on_gpu) continue;
    RasTarget target{rank.rank, rank.pid, rank.inner_pid};
    target.world = job.world;
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
    const auto addresses = addresses_of(target);
    const auto text = talk_to(addresses, {std::min(Clock::now() + kForOne, end), stopped});
    const auto wrong = addresses.empty()
                           ? std::string(
                                 "is not asked: names are not looked up, NCCL_RAS_ADDR has "
                                 "to be an address and a port")
                           : read_answer(text, targets, look.answers);
    look.problem =
        wrong.empty() ? "" : fmt::format("NCCL's RAS at {}:{} {}", target.host, target.port, wrong);
    if (wrong.empty()) return look;
  }
  return look;
}

void take_ras(LiveJob& job, RasLook look) {
  job.ras_problem = look.answers.empty() ? look.problem : "";
  if (look.answers.empty()) return;
  job.ras = std::move(look.answers);
  job.gone = ranks_over(job);
  for (auto& rank : job.ranks) {
    if (rank.looks.empty()) continue;
    rank.looks.back().launched = 0;
    for (const auto& answer : job.ras)
      if (const auto found = answer.launched.find(rank.rank); found != answer.launched.end())
        for (const auto& [call, count] : found->second) rank.looks.back().launched += count;
  }
}

}  // namespace dynamiccl
