#include "tests/tuner/transport/net_storm.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "core/vocabulary/splitmix64.hpp"
#include "tests/tuner/transport/loaded_net.hpp"
#include "tests/tuner/transport/test_memory.hpp"

namespace dynamiccl::testing {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kWindow = 8;
constexpr int kTold = 10;  ///< exit code of a rank whose network reported an error

bool g_quiet = true;
std::string g_last_words;

void log_line(int level, unsigned long /*flags*/, const char* /*file*/, int /*line*/,
              const char* format, ...) {
  std::array<char, 1024> text{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  if (level <= nccl_net::kWarn) g_last_words = text.data();
  if (!g_quiet) std::fprintf(stderr, "[%d] %s\n", getpid(), text.data());
}

/// The network said no: what a rank tells its application.
struct NetError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
void check(int result, const char* what) {
  if (result != 0)
    throw NetError(std::string(what) + " " + std::to_string(result) + ": " + g_last_words);
}
void require(bool good, const std::string& what) {
  if (!good) throw std::logic_error(what);
}

/// A message's size and content follow from who sends it where, and its number.
std::size_t size_of(const StormOptions& options, std::uint64_t key) {
  if (options.bytes != 0) return options.bytes;
  constexpr std::array<std::size_t, 8> kOdd{0, 1, 3, 7, 4095, 65537, 131072, 131073};
  const std::uint64_t value = splitmix64_of(key);
  if (value % 3 == 0) return std::min(kOdd[(value >> 8) % kOdd.size()], options.most_bytes);
  // As many small as large ones.
  return (value >> 20) % (std::size_t{1} << ((value >> 8) % 21)) % (options.most_bytes + 1);
}
void fill(std::vector<char>& data, std::size_t bytes, std::uint64_t key, bool ends_only) {
  std::uint64_t value = splitmix64_of(key ^ 0x5555);
  for (std::size_t i = 0; i < bytes; ++i) {
    if (ends_only && i == 64 && bytes > 128) i = bytes - 64;
    if (i % 8 == 0) value = value * 6364136223846793005ULL + 1442695040888963407ULL;
    data[i] = static_cast<char>(value >> (8 * (i % 8)));
  }
}

class Channel {
 public:
  Channel(const StormOptions& options, const LoadedNet& net, std::uint64_t key, bool sender)
      : options_(options), net_(net), key_(key), sender_(sender) {}
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  /// After an error too: copies may still go into its memory until the connection is closed.
  ~Channel() {
    if (connection_ == nullptr) return;
    if (registered_ != nullptr) net_.dereg_mr(connection_, registered_);
    if (sender_)
      net_.close_send(connection_);
    else
      net_.close_recv(connection_);
  }
  void open(void* connection) {
    connection_ = connection;
    const std::size_t room = room_bytes() * kWindow;
    memory_ = options_.device ? std::make_unique<TestMemory>(room, true)
                              : std::make_unique<TestMemory>(room, false);
    check(net_.reg_mr(connection_, memory_->data(), room,
                      options_.device ? nccl_net::kPointerCuda : nccl_net::kPointerHost,
                      &registered_),
          "regMr");
    scratch_.resize(room_bytes());
    expected_.resize(room_bytes());
  }
  [[nodiscard]] bool finished() const { return ended_ == options_.messages; }
  [[nodiscard]] std::uint64_t ended() const { return ended_; }
  /// @param most messages that may have begun. @returns whether anything moved
  bool poll(std::uint64_t most) {
    bool any = false;
    most = std::min(most, options_.messages);
    while (begun_ < most && begun_ - ended_ < kWindow && begin()) any = true;
    if (ended_ == begun_) return any;
    bool done = false;
    std::size_t bytes = 0;
    check(net_.test(requests_[ended_ % kWindow], done, bytes), "test");
    if (!done) return any;
    end(bytes);
    return true;
  }
  void close() {
    if (connection_ == nullptr) return;
    check(net_.dereg_mr(connection_, registered_), "deregMr");
    check(sender_ ? net_.close_send(connection_) : net_.close_recv(connection_), "close");
    connection_ = nullptr;
    memory_.reset();
  }

 private:
  [[nodiscard]] std::size_t room_bytes() const {
    return (options_.bytes != 0 ? options_.bytes : options_.most_bytes) + 16;
  }
  [[nodiscard]] char* place(std::uint64_t message) const {
    return memory_->data() + (message % kWindow) * room_bytes();
  }
  bool begin() {
    const std::uint64_t key = key_ + begun_ * 0x1000000ULL;
    const std::size_t bytes = size_of(options_, key);
    void* request = nullptr;
    if (sender_) {
      if (prepared_ == begun_) {
        fill(scratch_, bytes, key, options_.bytes != 0);
        if (options_.bytes == 0 || begun_ < kWindow) memory_->put(place(begun_), scratch_, bytes);
        ++prepared_;
      }
      check(net_.isend(connection_, place(begun_), bytes, registered_, &request), "isend");
    } else {
      check(net_.irecv(connection_, place(begun_), bytes + key % 7, registered_, &request),
            "irecv");
    }
    if (request == nullptr) return false;
    requests_[begun_++ % kWindow] = request;
    return true;
  }
  void end(std::size_t bytes) {
    const std::uint64_t key = key_ + ended_ * 0x1000000ULL;
    require(bytes == size_of(options_, key), "message of the wrong size");
    if (!sender_ && options_.bytes == 0) {
      memory_->get(place(ended_), scratch_, bytes);
      fill(expected_, bytes, key, false);
      require(std::memcmp(scratch_.data(), expected_.data(), bytes) == 0, "wrong bytes");
    }
    ++ended_;
  }

  const StormOptions& options_;
  const LoadedNet& net_;
  std::uint64_t key_;
  bool sender_;
  void* connection_ = nullptr;
  void* registered_ = nullptr;
  std::unique_ptr<TestMemory> memory_;
  std::vector<char> scratch_;
  std::vector<char> expected_;
  std::array<void*, kWindow> requests_{};
  std::uint64_t begun_ = 0;
  std::uint64_t prepared_ = 0;
  std::uint64_t ended_ = 0;
};

int open_files() {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}
int ring_mappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("dynamiccl-ring") != std::string::npos ? 1 : 0;
  return count;
}

void read_all(int file, void* data, std::size_t bytes) {
  auto* place = static_cast<char*>(data);
  while (bytes != 0) {
    const ssize_t size = read(file, place, bytes);
    if (size <= 0) throw NetError("the other rank ended before it connected");
    place += size;
    bytes -= static_cast<std::size_t>(size);
  }
}

/// Lives on when its rank has ended, until the test does: only closed descriptors can show the end.
[[noreturn]] void live_on() {
  constexpr int kMostFiles = 1024;
  struct stat status {};
  // The test's own pipes must not wait for this one.
  for (int file = 0; file < kMostFiles; ++file)
    if (file <= 2 || (fstat(file, &status) == 0 && S_ISFIFO(status.st_mode))) close(file);
  for (int i = 0; i < 600; ++i) usleep(100'000);
  _exit(0);
}

/// A thread that forks, at whatever moment the network is in, as long as this lives.
class ForkOften {
 public:
  explicit ForkOften(bool wanted) {
    if (!wanted) return;
    signal(SIGCHLD, SIG_IGN);  // nobody waits for children
    thread_ = std::thread([this] {
      constexpr int kMostAlive = 16;
      for (int count = 0; !over_.load(); ++count) {
        if (fork() == 0) {
          if (count % 2 == 0 || count >= 2 * kMostAlive) _exit(0);
          live_on();
        }
        usleep(1000);
      }
    });
  }
  ForkOften(const ForkOften&) = delete;
  ForkOften& operator=(const ForkOften&) = delete;
  ~ForkOften() {
    over_.store(true);
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::atomic<bool> over_{false};
  std::thread thread_;
};

/// One rank's life.
class Rank {
 public:
  Rank(const StormOptions& options, int rank, int to_previous, int from_next, int words)
      : options_(options),
        rank_(rank),
        to_previous_(to_previous),
        from_next_(from_next),
        words_(words),
        net_(options.library, options.version) {}

  double run() {
    check(net_.init(log_line), "init");
    const ForkOften forks(options_.fork_often);
    double seconds = 0;
    int files = 0;
    for (int round = 0; round < options_.rounds; ++round) {
      seconds += one_round(static_cast<std::uint64_t>(round));
      // The first round leaves threads and what they wait on.
      if (round == 0) files = open_files();
      require(open_files() == files, "descriptors leak");
      require(ring_mappings() == 0, "mappings leak");
      require(!options_.device || left_on_gpu() == 0, "memory of the GPU leaks");
    }
    check(net_.finalize(), "finalize");
    return seconds;
  }

 private:
  double one_round(std::uint64_t round) {
    const auto ranks = static_cast<std::uint64_t>(options_.ranks);
    const auto self = static_cast<std::uint64_t>(rank_);
    const auto previous = (self + ranks - 1) % ranks;
    std::vector<std::unique_ptr<Channel>> channels;
    for (int c = 0; c < options_.channels; ++c) {
      const std::uint64_t base = options_.seed * 1000 + round * 100 + static_cast<unsigned>(c);
      channels.push_back(
          std::make_unique<Channel>(options_, net_, splitmix64_of(base * 64 + self), true));
      channels.push_back(
          std::make_unique<Channel>(options_, net_, splitmix64_of(base * 64 + previous), false));
    }
    connect(channels);
    if (round == 0) require(write(words_, "+", 1) == 1, "the test is gone");
    if (options_.fork_children && round == 0) make_children();
    const auto begin = Clock::now();
    auto moved = begin;
    bool all = false;
    while (!all) {
      all = true;
      bool any = false;
      for (std::size_t i = 0; i < channels.size(); ++i) {
        // Senders and receivers take turns in the list.
        const bool waits = options_.in_turn && i % 2 == 0;
        any |= channels[i]->poll(waits ? channels[i + 1]->ended() + 1 : options_.messages);
        all &= channels[i]->finished();
      }
      const auto now = Clock::now();
      if (any) moved = now;
      if (!any) sched_yield();
      require(now - moved < std::chrono::seconds(options_.patience_s), "nothing moves");
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    for (auto& channel : channels) channel->close();
    return seconds;
  }

  void connect(std::vector<std::unique_ptr<Channel>>& channels) {
    const auto count = static_cast<std::size_t>(options_.channels);
    Listeners open_ones{net_, std::vector<void*>(count)};
    auto& listeners = open_ones.listeners;
    std::vector<std::array<char, nccl_net::kHandleBytes>> handles(count);
    for (std::size_t c = 0; c < count; ++c) {
      handles[c] = {};
      check(net_.listen(handles[c].data(), &listeners[c]), "listen");
      require(write(to_previous_, handles[c].data(), handles[c].size()) ==
                  static_cast<ssize_t>(handles[c].size()),
              "handles cannot be passed on");
    }
    for (auto& handle : handles) read_all(from_next_, handle.data(), handle.size());
    std::vector<bool> open(channels.size());
    const auto begin = Clock::now();
    for (std::size_t left = channels.size(); left != 0;) {
      for (std::size_t i = 0; i < channels.size(); ++i) {
        void* connection = nullptr;
        if (open[i]) continue;
        check(i % 2 == 0 ? net_.connect(handles[i / 2].data(), &connection)
                         : net_.accept(listeners[i / 2], &connection),
              i % 2 == 0 ? "connect" : "accept");
        if (connection == nullptr) continue;
        channels[i]->open(connection);
        open[i] = true;
        --left;
      }
      require(Clock::now() - begin < std::chrono::seconds(options_.patience_s),
              "no connection comes about");
    }
    for (void*& listener : listeners)
      check(net_.close_listen(std::exchange(listener, nullptr)), "closeListen");
  }

  /// Closed where a connection is refused, too.
  struct Listeners {
    const LoadedNet& net;
    std::vector<void*> listeners;
    ~Listeners() {
      for (void* listener : listeners)
        if (listener != nullptr) net.close_listen(listener);
    }
  };

  /// Children that outlive the rank: one forked, one made as shells and subprocess make them, where
  /// no handler of fork() runs.
  static void make_children() {
    if (fork() == 0) live_on();
    pid_t child = 0;
    char name[] = "sleep";
    char seconds[] = "60";
    char* const words[] = {name, seconds, nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (int file = 0; file <= 2; ++file) posix_spawn_file_actions_addclose(&actions, file);
    const int error = posix_spawnp(&child, name, &actions, nullptr, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    require(error == 0, "no child process");
  }

  const StormOptions& options_;
  int rank_;
  int to_previous_;
  int from_next_;
  int words_;
  LoadedNet net_;
};

struct Process {
  pid_t pid = -1;
  int words = -1;    ///< pipe: what the rank says at its end
  std::string said;  ///< of it already: a rank that never connects says no "+" before
};

[[noreturn]] void rank_main(const StormOptions& options, int rank, int to_previous, int from_next,
                            int words) {
  setpgid(0, 0);
  signal(SIGPIPE, SIG_IGN);
  const std::string folder =
      options.folders_apart ? options.folder + "/" + std::to_string(rank) : options.folder;
  if (options.folders_apart) mkdir(folder.c_str(), 0700);
  setenv("DYNAMICCL_SHARED_FOLDER", folder.c_str(), 1);
  if (options.device) {
    setenv("DYNAMICCL_TRANSPORT_DEVICE", "1", 1);
    setenv("NCCL_NET_GDR_LEVEL", "SYS", 1);
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  }
  int code = 0;
  std::string text;
  try {
    text = std::to_string(Rank(options, rank, to_previous, from_next, words).run());
  } catch (const NetError& error) {
    code = kTold;
    text = error.what();
  } catch (const std::exception& error) {
    code = 1;
    text = error.what();
  }
  const ssize_t size = write(words, text.data(), text.size());
  // Sanitizers check at a normal end.
  std::fflush(nullptr);
  if (size < 0) code = 2;
  std::exit(code);
}

std::string read_words(int file) {
  std::string text;
  std::array<char, 512> part{};
  for (ssize_t size = 0; (size = read(file, part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<std::size_t>(size));
  close(file);
  return text;
}

void judge(const StormOptions& options, int rank, int status, const std::string& words,
           StormResult& result) {
  const std::string who = "rank " + std::to_string(rank) + ": ";
  if (rank == options.kill_rank && WIFSIGNALED(status)) return;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kTold && options.kill_rank >= 0) {
    ++result.errors;
    return;
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    result.seconds = std::max(result.seconds, std::strtod(words.c_str(), nullptr));
    return;
  }
  result.ok = false;
  result.problem += (result.problem.empty() ? "" : "; ") + who +
                    (WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status)) : words);
}

/// Where a rank of its own writes its handles, and the one after it reads them.
std::string handles_of(const std::string& meeting, int rank) {
  return meeting + "/rank" + std::to_string(rank) + ".handles";
}

}  // namespace

void make_meeting(const std::string& meeting, int ranks) {
  for (int rank = 0; rank < ranks; ++rank)
    if (mkfifo(handles_of(meeting, rank).c_str(), 0600) != 0)
      throw std::runtime_error("no pipe in " + meeting);
}

void run_storm_rank(const StormOptions& options, int rank, const std::string& meeting) {
  g_quiet = options.quiet;
  // For both directions: no rank waits for another one to open its end.
  const int to_previous = open(handles_of(meeting, rank).c_str(), O_RDWR | O_CLOEXEC);
  const int from_next =
      open(handles_of(meeting, (rank + 1) % options.ranks).c_str(), O_RDWR | O_CLOEXEC);
  if (to_previous < 0 || from_next < 0) throw std::runtime_error("no pipes in " + meeting);
  rank_main(options, rank, to_previous, from_next, 1);
}

StormResult run_storm(const StormOptions& options) {
  g_quiet = options.quiet;
  const auto ranks = static_cast<std::size_t>(options.ranks);
  std::vector<std::array<int, 2>> pipes(ranks);  // [r]: from r to the rank before it
  for (auto& ends : pipes)
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  std::fflush(nullptr);  // what is written here already is not written again by each rank
  std::vector<Process> processes(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    std::array<int, 2> words{};
    if (pipe2(words.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    processes[r].pid = fork();
    if (processes[r].pid == 0) {
      for (std::size_t other = 0; other < ranks; ++other) {
        if (other != r) close(pipes[other][1]);
        if (other != (r + 1) % ranks) close(pipes[other][0]);
      }
      close(words[0]);
      rank_main(options, static_cast<int>(r), pipes[r][1], pipes[(r + 1) % ranks][0], words[1]);
    }
    close(words[1]);
    processes[r].words = words[0];
  }
  for (auto& ends : pipes) {
    close(ends[0]);
    close(ends[1]);
  }
  StormResult result;
  result.ok = true;
  // From here on ranks have messages under way; before that a job's own bootstrap notices an end.
  for (Process& process : processes) {
    char mark = 0;
    if (read(process.words, &mark, 1) == 1 && mark != '+') process.said = mark;
  }
  if (options.kill_rank >= 0) {
    usleep(static_cast<useconds_t>(options.kill_ms) * 1000);
    kill(processes[static_cast<std::size_t>(options.kill_rank)].pid, SIGKILL);
  }
  const auto killed = Clock::now();
  for (std::size_t r = 0; r < ranks; ++r) {
    int status = 0;
    // A child of the rank may hold the pipe: the rank's end comes first.
    waitpid(processes[r].pid, &status, 0);
    result.slowest_error_s = std::chrono::duration<double>(Clock::now() - killed).count();
    fcntl(processes[r].words, F_SETFL, O_NONBLOCK);
    judge(options, static_cast<int>(r), status, processes[r].said + read_words(processes[r].words),
          result);
  }
  // Children that ranks left.
  for (const Process& process : processes)
    if (process.pid > 1) kill(-process.pid, SIGKILL);
  return result;
}

}  // namespace dynamiccl::testing
