// A job without GPUs that speaks NCCL's plugin interfaces as NCCL does: ranks that train in steps,
// whose all-reduces really go through TCP sockets. Each connection is paced, so that a message's
// time follows NCCL_SOCKET_NTHREADS, NCCL_MIN_CTAS and the channel cap that the tuner half answers
// with, whatever else the machine does. Ranks that one NCCL_HOSTID makes one host are not paced.
//   socket-job [--ranks N] [--steps N] [--loop plain|layers|random|graph] [--own-clock FILE]
//              [--pace BYTES_PER_SECOND] [--apart FOLDER] [--hosts names|all]
// The last rank of a job that is apart meets the others' tuners in FOLDER, as on another host.
// --hosts: every rank has a host name of its own, with "all" a /dev/shm too, as containers have
// (root).
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/nccl_plugins.hpp"

namespace {

using namespace dynamiccl::testing;
using Clock = std::chrono::steady_clock;

constexpr int kMostStreams = 8;
constexpr std::size_t kChunk = std::size_t{64} << 10;
/// One connection's pace, and what each one used costs a call: long against what a busy machine
/// adds.
double bytes_per_second = 12.5e6;
constexpr auto kPerStream = std::chrono::microseconds(200);

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(3);
}

/// As NCCL's initEnv(): what is set already stays.
void read_conf() {
  const char* path = std::getenv("NCCL_CONF_FILE");
  std::ifstream file(path == nullptr ? "" : path);
  for (std::string line; std::getline(file, line);) {
    const auto equals = line.find('=');
    if (line.empty() || line[0] == '#' || equals == std::string::npos) continue;
    setenv(line.substr(0, equals).c_str(), line.substr(equals + 1).c_str(), 0);
  }
}

int number(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::atoi(text);
}

/// Connections of this rank to the next and from the one before.
struct Ring {
  std::array<int, kMostStreams> next{};
  std::array<int, kMostStreams> previous{};

  /// @param listening one socket per rank, made before the fork
  Ring(const std::vector<int>& listening, const std::vector<int>& ports, int rank) {
    const auto ranks = static_cast<int>(ports.size());
    const auto to = static_cast<std::size_t>((rank + 1) % ranks);
    for (int& socket_to : next) {
      socket_to = socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<std::uint16_t>(ports[to]));
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      if (connect(socket_to, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
        fail("connect");
      const int one = 1;
      setsockopt(socket_to, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    }
    for (int& from : previous) {
      from = accept(listening[static_cast<std::size_t>(rank)], nullptr, nullptr);
      if (from < 0) fail("accept");
    }
  }

  void exchange(int stream, std::size_t bytes, char mark, char expected) const {
    std::vector<char> out(kChunk, mark);
    std::vector<char> in(kChunk);
    for (std::size_t done = 0; done < bytes;) {
      const std::size_t part = std::min(kChunk, bytes - done);
      const auto begin = Clock::now();
      const auto at = static_cast<std::size_t>(stream);
      if (send(next[at], out.data(), part, MSG_NOSIGNAL) != static_cast<ssize_t>(part))
        std::exit(4);
      if (recv(previous[at], in.data(), part, MSG_WAITALL) != static_cast<ssize_t>(part))
        std::exit(4);
      if (in.front() != expected || in[part - 1] != expected) std::exit(5);
      done += part;
      std::this_thread::sleep_until(
          begin + std::chrono::duration_cast<Clock::duration>(
                      std::chrono::duration<double>(static_cast<double>(part) / bytes_per_second)));
    }
  }
};

/// As the library of docs/one-host.md answers NCCL where it is preloaded, which wants GPUs.
void answer_as_the_library() {
  const char* preload = std::getenv("LD_PRELOAD");
  const char* folder = std::getenv("DYNAMICCL_SHARED_FOLDER");
  if (preload != nullptr && folder != nullptr && std::strstr(preload, "onehost") != nullptr)
    setenv("NCCL_HOSTID", (std::string("onehost shm, folder ") + folder).c_str(), 0);
}

void stand_apart(const std::string& how, int rank) {
  if (how.empty()) return;
  const std::string name = "rank" + std::to_string(rank);
  if (unshare(CLONE_NEWUTS | CLONE_NEWNS) != 0 || sethostname(name.data(), name.size()) != 0)
    fail("unshare");
  if (how == "all" && (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
                       mount("none", "/dev/shm", "tmpfs", 0, "size=64m") != 0))
    fail("mount");
}

class Rank {
 public:
  Rank(std::uint64_t communicator, const std::vector<int>& listening, const std::vector<int>& ports,
       int rank, int nodes)
      : ring_(listening, ports, rank),
        plugins_(communicator, static_cast<int>(ports.size()), rank, nodes),
        rank_(rank),
        ranks_(static_cast<int>(ports.size())) {
    if (std::getenv("NCCL_HOSTID") != nullptr) bytes_per_second = 1e12;
  }

  /// As DDP hands its weights out: all decided together, then told one by one.
  void broadcasts(int count) {
    plugins_.decide(4096);
    for (int i = 0; i < count; ++i)
      plugins_.tell(
          4096, 1, [] {}, "Broadcast");
  }

  void all_reduce(std::size_t bytes, bool asks = true) {
    const int threads = number("NCCL_SOCKET_NTHREADS", 0);
    const int ceiling = number("NCCL_MIN_CTAS", 2);
    if (asks) cap_ = plugins_.decide(bytes);
    const int channels = std::clamp(cap_ == 0 ? ceiling : std::min(cap_, ceiling), 1, 16);
    // Without helper threads one thread serves all channels.
    const int streams = std::clamp(threads == 0 ? 1 : threads * channels, 1, kMostStreams);
    const auto mark = static_cast<char>(calls_ + rank_);
    const auto expected = static_cast<char>(calls_ + (rank_ + ranks_ - 1) % ranks_);
    ++calls_;
    plugins_.tell(bytes, channels, [&] {
      std::this_thread::sleep_for(kPerStream * streams);
      std::vector<std::thread> busy;
      for (int s = 0; s < streams; ++s)
        busy.emplace_back([&, s] {
          ring_.exchange(s, bytes / static_cast<std::size_t>(streams), mark, expected);
        });
      for (std::thread& one : busy) one.join();
    });
  }

 private:
  Ring ring_;
  Plugins plugins_;
  int rank_;
  int ranks_;
  int calls_ = 0;
  int cap_ = 0;
};

void train(Rank& rank, int steps, const std::string& loop, const std::string& clock_file) {
  std::ofstream clock(clock_file);
  std::mt19937 random(7);
  rank.all_reduce(4096);
  // Layer after layer: a rhythm, but none of a step.
  for (int layer = 0; layer < 24; ++layer) {
    rank.broadcasts(6);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  rank.broadcasts(60);
  for (int step = 0; step < steps; ++step) {
    const auto begin = Clock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    if (loop == "random") {
      rank.all_reduce(std::size_t{4096} * (1 + random() % 29));
    } else if (loop == "layers") {
      // Layers that are alike, many times in a step.
      rank.all_reduce(4);
      for (int layer = 0; layer < 12; ++layer) {
        rank.all_reduce(8192);
        rank.all_reduce(16384);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    } else {
      // Captured once: replays do not ask.
      const bool asks = loop != "graph" || step == 0;
      for (const std::size_t bytes :
           {std::size_t{512} << 10, std::size_t{384} << 10, std::size_t{16} << 10})
        rank.all_reduce(bytes, asks);
    }
    if (!clock_file.empty())
      clock << std::chrono::duration<double, std::micro>(Clock::now() - begin).count() << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  int ranks = 2;
  int steps = 100000;
  std::string loop = "plain";
  std::string clock;
  std::string apart;
  std::string hosts;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--ranks") ranks = std::atoi(argv[i + 1]);
    if (option == "--steps") steps = std::atoi(argv[i + 1]);
    if (option == "--loop") loop = argv[i + 1];
    if (option == "--own-clock") clock = argv[i + 1];
    if (option == "--apart") apart = argv[i + 1];
    if (option == "--hosts") hosts = argv[i + 1];
    if (option == "--pace") bytes_per_second = std::atof(argv[i + 1]);
  }
  std::vector<int> listening;
  std::vector<int> ports;
  for (int r = 0; r < ranks; ++r) {
    listening.push_back(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (bind(listening.back(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
        listen(listening.back(), kMostStreams) != 0 ||
        getsockname(listening.back(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
      fail("listen");
    ports.push_back(ntohs(address.sin_port));
  }
  const std::uint64_t communicator = now_ns() | 1;
  std::vector<pid_t> children;
  for (int r = 0; r < ranks; ++r) {
    const pid_t child = fork();
    if (child == 0) {
      if (!apart.empty() && r + 1 == ranks) setenv("DYNAMICCL_TUNER_FOLDER", apart.c_str(), 1);
      read_conf();
      answer_as_the_library();
      stand_apart(hosts, r);
      {
        Rank rank(communicator, listening, ports, r, apart.empty() ? 1 : 2);
        train(rank, steps, loop, r == 0 ? clock : "");
      }
      std::exit(0);
    }
    children.push_back(child);
  }
  int code = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) code = 1;
  }
  return code;
}
