#include "workers/measure/neighbour.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <vector>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/usable_cores.hpp"
#include "profiles/detect/network_interface.hpp"
#include "workers/device/device.hpp"
#include "workers/messages.hpp"

namespace dynamiccl {
namespace {

constexpr std::array<std::string_view, 3> kKinds{"compute", "link", "training"};
/// Three matrices of 1 MiB: beyond a core's first caches, as a layer's are.
constexpr std::size_t kOrder = 512;
constexpr std::size_t kStepBytes = 8 << 20;
constexpr std::chrono::milliseconds kStepComputes{20};
constexpr int kWaitS = 30;

struct Place {
  in_addr address{};
  int port = 0;
};

/// A listening socket and where it is; the child inherits it.
std::pair<int, Place> listen_here() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  // Of the interface that ranks meet on when nobody names another.
  at.sin_addr = ipv4_address_of(default_interface()).value_or(in_addr{htonl(INADDR_LOOPBACK)});
  socklen_t length = sizeof at;
  auto* generic = reinterpret_cast<sockaddr*>(&at);
  if (listener < 0 || bind(listener, generic, length) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, generic, &length) != 0) {
    if (listener >= 0) close(listener);
    throw Error(ErrorKind::environment,
                "no listening socket for the neighbour of this rank; is the interface up?");
  }
  return {listener, {at.sin_addr, ntohs(at.sin_port)}};
}

/// Where the next rank's neighbour listens. Collective.
Place next_of(Communicator& comm, const Place& own) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const auto rank = static_cast<std::size_t>(comm.rank());
  std::vector<double> places(2 * ranks, 0);
  places[2 * rank] = ntohl(own.address.s_addr);
  places[2 * rank + 1] = own.port;
  places = max_over_ranks(comm, std::move(places));
  const std::size_t next = (rank + 1) % ranks;
  return {{htonl(static_cast<std::uint32_t>(places[2 * next]))},
          static_cast<int>(places[2 * next + 1])};
}

/// Matrices of one thread.
struct Matrices {
  std::vector<float> a = std::vector<float>(kOrder * kOrder, 1.0F);
  std::vector<float> b = std::vector<float>(kOrder * kOrder, 0.5F);
  std::vector<float> c = std::vector<float>(kOrder * kOrder, 0.0F);
  /// Rows of c, one after the other, begun again after the last.
  void multiply_row() {
    float* out = &c[row_ * kOrder];
    for (std::size_t k = 0; k < kOrder; ++k) {
      const float factor = a[row_ * kOrder + k];
      const float* in = &b[k * kOrder];
      for (std::size_t j = 0; j < kOrder; ++j) out[j] += factor * in[j];
    }
    for (std::size_t j = 0; j < kOrder; ++j) out[j] *= 0.5F;  // stays finite
    seen_ = out[0];
    row_ = (row_ + 1) % kOrder;
  }

 private:
  std::size_t row_ = 0;
  /// Volatile: what nobody reads need not be computed, and a loop without effects need not run.
  volatile float seen_ = 0;
};

/// What a neighbour's step does between its messages, on a core or on a GPU.
class Computing {
 public:
  /// @param gpu "" = on a core
  explicit Computing(const std::string& gpu) {
    if (gpu.empty()) return;
    device_ = open_device_at(gpu);
    gradients_ = device_->allocate(kStepBytes);
    pinned_ = device_->allocate_pinned(kStepBytes);
    device_->multiply_for(std::chrono::milliseconds{0});  // what comes once comes now
  }
  void run_for(std::chrono::milliseconds time) {
    if (device_ != nullptr) return device_->multiply_for(time);
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) matrices_.multiply_row();
  }
  /// A message leaves the GPU, or comes back; nothing on a core.
  void to_host() {
    if (device_ != nullptr) device_->copy_to_host(pinned_.get(), gradients_.get(), kStepBytes);
  }
  void from_host() {
    if (device_ != nullptr) device_->copy_to_device(gradients_.get(), pinned_.get(), kStepBytes);
  }

 private:
  Matrices matrices_;
  std::unique_ptr<Device> device_;
  std::shared_ptr<std::byte> gradients_;
  std::shared_ptr<std::byte> pinned_;
};

/// Sent once to the rank that waits for it: the neighbour works.
void say_ready(int pipe) {
  const char word = 1;
  if (write(pipe, &word, 1) != 1) _exit(1);
  close(pipe);
}

/// @param after the connection to the next neighbour, which sends nothing: what comes is its end
/// @returns a connection from the neighbour before; -1 when none came in time
int accepted(int listener, int after) {
  std::array<pollfd, 2> both{{{listener, POLLIN, 0}, {after, POLLIN, 0}}};
  const bool came = poll(both.data(), both.size(), kWaitS * 1000) > 0 && both[0].revents != 0;
  return came ? accept(listener, nullptr, nullptr) : -1;
}

int joined(const Place& place) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr = place.address;
  at.sin_port = htons(static_cast<std::uint16_t>(place.port));
  for (int tries = 0; tries < kWaitS * 10; ++tries) {
    // A socket of its own for each try: what a failed connect leaves is unspecified.
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    if (connect(socket, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0) return socket;
    const bool gone = errno == ECONNREFUSED;  // it listened before anybody knew where
    close(socket);
    if (gone) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return -1;
}

bool send_bytes(int socket, const std::vector<char>& data, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const auto sent =
        ::send(socket, data.data(), std::min(data.size(), bytes - done), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    done += static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_bytes(int socket, std::vector<char>& data, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const auto got = ::recv(socket, data.data(), std::min(data.size(), bytes - done), 0);
    if (got <= 0) return false;
    done += static_cast<std::size_t>(got);
  }
  return true;
}

/// Until a peer is gone: computing (of "training"), then a message to the next neighbour and one
/// from the neighbour before.
int exchange(bool computes, const std::string& gpu, int ready, int listener, const Place& next) {
  Computing computing(computes ? gpu : "");
  // The neighbour before waits in the listener's queue until it is accepted.
  const int after = joined(next);
  const int before = after < 0 ? -1 : accepted(listener, after);
  if (before < 0) return 1;
  say_ready(ready);
  const std::vector<char> out(std::size_t{256} << 10, 'x');
  std::vector<char> in(out.size());
  for (bool alive = true; alive;) {
    if (computes) {
      computing.run_for(kStepComputes);
      computing.to_host();
    }
    std::jthread sending([&] { send_bytes(after, out, kStepBytes); });
    alive = receive_bytes(before, in, kStepBytes);
    if (computes) computing.from_host();
    if (!alive) shutdown(after, SHUT_RDWR);
  }
  return 0;
}

[[noreturn]] void compute(int ready, const std::string& gpu, int threads) {
  if (!gpu.empty()) {
    Computing computing(gpu);
    say_ready(ready);
    for (;;) computing.run_for(std::chrono::milliseconds{100});
  }
  const auto forever = [] {
    Matrices matrices;
    for (;;) matrices.multiply_row();
  };
  say_ready(ready);
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(forever);
  forever();
  std::abort();  // not reached
}

/// A neighbour and the pipe by which it says that it works.
struct Started {
  pid_t child = -1;
  int ready = -1;
};

/// This program again, as a neighbour: forked from a library's threads nothing else is safe. Its
/// arguments: the kind, its end of the pipe, `arguments`.
Started start(const std::string& kind, std::vector<std::string> arguments) {
  std::array<int, 2> ends{-1, -1};
  if (pipe(ends.data()) != 0)
    throw Error(ErrorKind::environment, "no pipe to the neighbour of this rank");
  arguments.insert(arguments.begin(), {kNeighbourArgument, kind, std::to_string(ends[1])});
  std::vector<char*> argv;
  std::string self = "/proc/self/exe";
  argv.push_back(self.data());
  for (std::string& one : arguments) argv.push_back(one.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child != 0) close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    throw Error(ErrorKind::environment, "no process for the neighbour of this rank: fork failed");
  }
  if (child > 0) return {child, ends[0]};
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  execv(self.c_str(), argv.data());
  _exit(1);
}

/// Waits until it works. @returns false when it has ended, or has not come so far in time
bool is_ready(int pipe) {
  pollfd one{pipe, POLLIN, 0};
  char word = 0;
  // Longer than it waits for its peers, which ends it.
  int seen = -1;
  do seen = poll(&one, 1, (2 * kWaitS + 5) * 1000);
  while (seen < 0 && errno == EINTR);
  return seen == 1 && read(pipe, &word, 1) == 1;
}

bool has_ended(pid_t child) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
         info.si_pid != 0;
}

int number(const char* text) {
  int value = -1;
  const std::string_view all(text);
  std::from_chars(all.data(), all.data() + all.size(), value);
  return value;
}

}  // namespace

std::string wanted_neighbour() {
  const char* kind = std::getenv(kNeighbourVariable);
  return kind == nullptr ? "" : kind;
}

Neighbour::Neighbour(Communicator& comm, const std::string& kind) {
  if (kind.empty() || kind == "none") return;
  if (std::find(kKinds.begin(), kKinds.end(), kind) == kKinds.end())
    throw Error(ErrorKind::input,
                fmt::format("{} = {}: known are none, {}, {}, {}", kNeighbourVariable, kind,
                            kKinds[0], kKinds[1], kKinds[2]));
  kind_ = kind;
  const std::string gpu = comm.device() != nullptr ? comm.device()->pci() : "";
  if (kind == "compute") {
    await(comm, {gpu, std::to_string(std::max(1, usable_cores() / comm.size()))});
    return;
  }
  const auto [listener, own] = listen_here();
  const Place next = next_of(comm, own);
  await(comm,
        {gpu, std::to_string(listener), std::to_string(next.address.s_addr),
         std::to_string(next.port)},
        listener);
}

void Neighbour::await(Communicator& comm, std::vector<std::string> arguments, int listener) {
  const Started started = start(kind_, std::move(arguments));
  // Held by the neighbour alone, so that its peers see when it has ended.
  if (listener >= 0) close(listener);
  child_ = started.child;
  const bool ready = is_ready(started.ready);
  close(started.ready);
  const bool missing = max_over_ranks(comm, {ready ? 0.0 : 1.0})[0] > 0;
  if (!missing) return;
  stop();  // a constructor that throws has no destructor that would
  throw Error(ErrorKind::environment,
              fmt::format("{} = {}: {}; nothing was measured", kNeighbourVariable, kind_,
                          ready ? "another rank's neighbour did not come to work"
                                : "the neighbour of this rank did not come to work: it ended, or "
                                  "found no peers within 30 s (may ranks connect to each other?)"));
}

double Neighbour::end(Communicator& comm) {
  if (child_ <= 0) return 0;
  // Before any is stopped: those that exchange end when a peer does.
  const bool ended = has_ended(child_);
  const bool lost = max_over_ranks(comm, {ended ? 1.0 : 0.0})[0] > 0;
  const double cpu_s = stop();
  if (lost)
    throw Error(
        ErrorKind::environment,
        fmt::format("{} = {}: {} before the cells were over, so that they were not all "
                    "measured next to it; measure them again (was it out of memory?)",
                    kNeighbourVariable, kind_,
                    ended ? "the neighbour of this rank ended" : "another rank's neighbour ended"));
  return cpu_s;
}

double Neighbour::stop() {
  if (child_ <= 0) return 0;
  kill(child_, SIGKILL);
  rusage usage{};
  wait4(child_, nullptr, 0, &usage);
  child_ = -1;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Neighbour::~Neighbour() { stop(); }

int be_neighbour(int count, char** arguments) {
  const std::string_view kind = count > 0 ? arguments[0] : "";
  try {
    const std::string gpu = count > 2 ? arguments[2] : "";
    if (kind == "compute" && count == 4)
      compute(number(arguments[1]), gpu, std::max(1, number(arguments[3])));
    if ((kind == "link" || kind == "training") && count == 6)
      return exchange(kind == "training", gpu, number(arguments[1]), number(arguments[3]),
                      {{static_cast<in_addr_t>(std::strtoul(arguments[4], nullptr, 10))},
                       number(arguments[5])});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "the neighbour of this rank: %s\n", error.what());
    return 1;
  }
  return 2;
}

}  // namespace dynamiccl
