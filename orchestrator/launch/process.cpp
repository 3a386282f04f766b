#include "orchestrator/launch/process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/asio.hpp>
#include <boost/process.hpp>
#include <boost/process/extend.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "containers/limit_mark.hpp"
#include "containers/processes.hpp"
#include "core/vocabulary/program_signals.hpp"
#include "orchestrator/launch/adopted.hpp"
#include "orchestrator/launch/interrupt.hpp"
#include "orchestrator/launch/process_states.hpp"

namespace dynamiccl {
namespace {

namespace asio = boost::asio;
namespace bp = boost::process;
using Clock = std::chrono::steady_clock;

constexpr Micros kKillRound{200e3};
constexpr int kMaxKillRounds = 50;
/// So often in turn a process is seen to be stopped, or all ranks gone, before that ends its start.
constexpr int kLooks = 15;

std::chrono::microseconds to_chrono(Micros time) {
  return std::chrono::microseconds(static_cast<std::int64_t>(time.count()));
}

/// Runs in the child between fork and exec. A group of its own makes the whole launch reachable by
/// one kill; the parent-death signal ends launchers of an orchestrator that was killed itself.
struct ChildSetup : bp::extend::handler {
  template <class Sequence>
  void on_exec_setup(Sequence&) const {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    // Of one that was killed before that no signal comes.
    if (getppid() != starter) _exit(127);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    for (const int number : kChildDefaults) signal(number, SIG_DFL);
    take_limit_mark(mark);
  }
  pid_t starter = getpid();
  std::uint64_t mark = 0;  ///< see own_limit_mark(); 0: none
};

/// Keeps the end of a stream.
class Tail {
 public:
  explicit Tail(std::size_t kept) : kept_(kept) {}
  void add(const char* data, std::size_t size) {
    text_.append(data, size);
    if (text_.size() > 2 * kept_) text_.erase(0, text_.size() - kept_);
  }
  [[nodiscard]] std::string take() {
    if (text_.size() > kept_) text_.erase(0, text_.size() - kept_);
    return std::move(text_);
  }

 private:
  std::size_t kept_;
  std::string text_;
};

std::vector<ProcessInfo> marked_processes(const std::string& marker) {
  std::vector<ProcessInfo> marked;
  for (auto& process : list_processes()) {
    if (process_variable(process.pid, kMarkerVariable) == marker)
      marked.push_back(std::move(process));
  }
  return marked;
}

/// One command and its streams.
class Child {
 public:
  Child(asio::io_context& io, const ProcessOptions& options)
      : out_(io), err_(io), out_tail_(options.kept_bytes), err_tail_(options.kept_bytes) {
    close_on_exec(out_);
    close_on_exec(err_);
  }

  void start(asio::io_context& io, const Command& command, const ProcessOptions& options,
             const std::function<void()>& on_exit) {
    const auto program = command.argv.front().find('/') == std::string::npos
                             ? bp::search_path(command.argv.front())
                             : boost::filesystem::path(command.argv.front());
    if (program.empty()) {
      result.start_error = fmt::format("{}: not found in PATH", command.argv.front());
      return;
    }
    result.is_rank = command.is_rank;
    bp::environment environment = boost::this_process::environment();
    // Not by operator[], which in Boost 1.74 reads beyond variables that are shorter than the name.
    for (const auto& [name, value] : command.environment) environment.set(name, value);
    environment.set(kMarkerVariable, options.marker);
    std::error_code error;
    const auto input = open_input(command);
    if (input == nullptr) {
      // An empty input in its place would mean to the command that this program is gone.
      result.start_error = fmt::format("{}: its input cannot be opened: {}", command.argv.front(),
                                       std::strerror(errno));
      return;
    }
    ChildSetup setup;
    if (options.keeps_none) setup.mark = own_limit_mark();
    errno = 0;
    process_ = bp::child(
        bp::exe = program.string(),
        bp::args = std::vector<std::string>(command.argv.begin() + 1, command.argv.end()),
        bp::env = environment, bp::std_in<input.get(), bp::std_out> out_, bp::std_err > err_, setup,
        io, error, bp::on_exit([this, on_exit](int, const std::error_code&) {
          running_ = false;
          record_status(process_.native_exit_code());
          on_exit();
        }));
    // Boost 1.74 says nothing of a pipe of its own that it cannot make: nobody would ever end.
    if (!error && process_.id() <= 0) error = std::error_code(errno, std::generic_category());
    if (error || process_.id() <= 0) {
      result.start_error = fmt::format("{}: {}", command.argv.front(), error.message());
      return;
    }
    running_ = true;
    pid_ = process_.id();
    read(out_, out_buffer_, out_tail_, options.on_stdout);
    read(err_, err_buffer_, err_tail_, options.on_stderr);
  }

  /// 0: it did not start.
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] bool running() const { return running_; }
  [[nodiscard]] bool failed() const {
    return !running_ && (result.exit_code != 0 || !result.start_error.empty());
  }
  /// The group outlives its leader while members are left; its number is not reused until then.
  void signal_group(int signal) const {
    if (pid_ > 0) kill(-pid_, signal);
  }
  void abandon() {
    if (!running_) return;
    running_ = false;
    process_.detach();
  }
  /// Nothing is read by the loop any more but what it has begun.
  void end_reading() { reads_ = false; }
  /// What the pipes hold once the loop reads no more: however slow this machine is, and no more
  /// where somebody still writes.
  void read_rest(const ProcessOptions& options) {
    take_rest(out_.native_source(), out_tail_, options.on_stdout);
    take_rest(err_.native_source(), err_tail_, options.on_stderr);
  }
  void finish() {
    boost::system::error_code ignored;
    out_.close(ignored);
    err_.close(ignored);
    result.stdout_tail = out_tail_.take();
    result.stderr_tail = err_tail_.take();
  }

  ProcessResult result;

 private:
  using Buffer = std::array<char, 8192>;
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  /// What the child reads from; of a held one the other end stays open here. nullptr with errno set
  /// where there is none.
  std::unique_ptr<std::FILE, Close> open_input(const Command& command) {
    std::array<int, 2> ends{-1, -1};
    if (!command.input) return std::unique_ptr<std::FILE, Close>(std::fopen("/dev/null", "re"));
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return nullptr;
    std::unique_ptr<std::FILE, Close> from(fdopen(ends[0], "r"));
    held_input_.reset(fdopen(ends[1], "w"));
    if (from == nullptr || held_input_ == nullptr) return nullptr;
    // A line, which a pipe takes at once.
    std::fputs(command.input->c_str(), held_input_.get());
    std::fflush(held_input_.get());
    return from;
  }

  /// Instead of bp::limit_handles, which in 1.74 also closes the stdout and stderr it has just
  /// redirected; without either, siblings would hold each other's pipes open.
  static void close_on_exec(bp::async_pipe& pipe) {
    fcntl(pipe.native_source(), F_SETFD, FD_CLOEXEC);
    fcntl(pipe.native_sink(), F_SETFD, FD_CLOEXEC);
  }

  void read(bp::async_pipe& pipe, Buffer& buffer, Tail& tail,
            const std::function<void(const std::string&)>& live) {
    pipe.async_read_some(asio::buffer(buffer),
                         [this, &pipe, &buffer, &tail, live](const boost::system::error_code& error,
                                                             std::size_t size) {
                           if (size > 0) {
                             tail.add(buffer.data(), size);
                             if (live) live(std::string(buffer.data(), size));
                           }
                           if (!error && reads_) read(pipe, buffer, tail, live);
                         });
  }

  static void take_rest(int pipe, Tail& tail, const std::function<void(const std::string&)>& live) {
    Buffer buffer{};
    const int most = fcntl(pipe, F_GETPIPE_SZ);
    for (ssize_t taken = 0; taken < most;) {
      pollfd ready{pipe, POLLIN, 0};
      if (poll(&ready, 1, 0) <= 0) return;
      const ssize_t size = ::read(pipe, buffer.data(), buffer.size());
      if (size < 0 && errno == EINTR) continue;
      if (size <= 0) return;
      taken += size;
      tail.add(buffer.data(), static_cast<std::size_t>(size));
      if (live) live(std::string(buffer.data(), static_cast<std::size_t>(size)));
    }
  }

  void record_status(int status) {
    if (WIFSIGNALED(status)) {
      result.signal = WTERMSIG(status);
    } else {
      result.exit_code = WEXITSTATUS(status);
    }
  }

  std::unique_ptr<std::FILE, Close> held_input_;
  bp::async_pipe out_;
  bp::async_pipe err_;
  Buffer out_buffer_{};
  Buffer err_buffer_{};
  Tail out_tail_;
  Tail err_tail_;
  bp::child process_;
  pid_t pid_ = 0;
  bool running_ = false;
  bool reads_ = true;
};

/// All commands of one start, their deadline and their end. One thread, one loop.
class Start {
 public:
  explicit Start(const ProcessOptions& options)
      : options_(options),
        timer_(io_),
        question_(io_),
        look_(io_),
        interrupt_(io_),
        began_(Clock::now()) {}

  ProcessOutcome run(const std::vector<Command>& commands) {
    watch_interrupts();
    arm(options_.timeout, &Start::time_out);
    if (options_.keeps_none) adoption_.emplace();
    if (options_.enough) ask_again();
    if (options_.stopped_limit.count() > 0) look_again();
    for (const auto& command : commands) {
      children_.emplace_back(io_, options_);
      auto& child = children_.back();
      child.start(io_, command, options_, [this, &child] { ended(child); });
      if (!child.result.start_error.empty()) break;
    }
    if (any_failed()) stop(SIGTERM);
    while (any_running()) io_.run_one();
    outcome_.duration =
        Micros(std::chrono::duration<double, std::micro>(Clock::now() - began_).count());
    end_left_overs();
    adoption_.reset();
    drain();
    for (auto& child : children_) {
      child.finish();
      outcome_.results.push_back(std::move(child.result));
    }
    return std::move(outcome_);
  }

 private:
  [[nodiscard]] bool any_running() const {
    return std::any_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.running(); });
  }
  [[nodiscard]] bool any_failed() const {
    return std::any_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.failed(); });
  }

  void arm(Micros after, void (Start::*then)()) {
    timer_.expires_after(to_chrono(after));
    timer_.async_wait([this, then](const boost::system::error_code& error) {
      if (!error) (this->*then)();
    });
  }

  void watch_interrupts() {
    if (interrupt_descriptor() < 0) return;
    if (interrupt_signal() != 0) outcome_.interrupted_by = interrupt_signal();
    interrupt_.assign(fcntl(interrupt_descriptor(), F_DUPFD_CLOEXEC, 0));
    wait_for_interrupt();
  }

  void wait_for_interrupt() {
    interrupt_.async_wait(
        asio::posix::stream_descriptor::wait_read, [this](const boost::system::error_code& error) {
          if (error) return;
          char byte = 0;
          [[maybe_unused]] const auto n = ::read(interrupt_.native_handle(), &byte, 1);
          const bool again = outcome_.interrupted_by != 0 && stopping_;
          outcome_.interrupted_by = interrupt_signal();
          if (again) {
            kill_now();
          } else {
            stop(SIGTERM);
          }
          wait_for_interrupt();
        });
  }

  void ended(Child& child) {
    child.result.by_itself = !stopping_;
    if (!any_running() || stopping_ || !child.failed()) return;
    // The others may still write why; past the grace they only wait for the dead one.
    arm(std::min(options_.grace, options_.timeout), &Start::stop_after_failure);
  }
  void stop_after_failure() { stop(SIGTERM); }

  void time_out() {
    outcome_.timed_out = true;
    outcome_.states = states_of_processes(kMarkerVariable, options_.marker);
    stop(SIGTERM);
  }

  void ask_again() {
    question_.expires_after(std::chrono::milliseconds(100));
    question_.async_wait([this](const boost::system::error_code& error) {
      if (error || stopping_) return;
      reap_adopted();
      if (!options_.enough()) {
        ask_again();
        return;
      }
      outcome_.ended_early = true;
      stop(SIGTERM);
    });
  }

  /// Who is stopped is seen by the kernel's word for it, not by silence: a slow process is not. By
  /// how often it was seen, not by the clock: where all were stopped, this program too, as by a
  /// batch system that suspends a job, all go on together.
  void look_again() {
    look_.expires_after(to_chrono(Micros(options_.stopped_limit.count() / kLooks)));
    look_.async_wait([this](const boost::system::error_code& error) {
      if (error || stopping_) return;
      if (options_.on_look) options_.on_look();
      // Finding them takes longer than looking at them: seldom once they are all there.
      if (++looked_ >= find_at_) {
        known_ = pids_of_processes(kMarkerVariable, options_.marker);
        find_at_ = std::min(2 * looked_, looked_ + kLooks);
      }
      for (const pid_t pid : known_) {
        Stopped& seen = seen_stopped_[pid];
        // Somebody may stop and continue it in the time of the looks.
        const auto switches = switches_of(pid);
        const bool same = std::exchange(seen.switches, switches) == switches;
        seen.looks = same && is_stopped(pid) ? seen.looks + 1 : 0;
        if (seen.looks >= kLooks && is_still_there(pid)) return end_stopped(pid);
      }
      seen_deserted_ = is_deserted() ? seen_deserted_ + 1 : 0;
      if (seen_deserted_ >= kLooks) return end_deserted();
      look_again();
    });
  }
  /// A launcher may stand still when its ranks end: Open MPI's does now and then when one is killed
  /// while it starts them. Only ranks count: a command whose ranks cannot be seen from here may
  /// start something in passing. A rank that was seen once counts by its process number from then
  /// on, as the program that it becomes may hide the marker; children of the commands count too.
  [[nodiscard]] bool is_deserted() {
    note_started();
    if (!had_started_ || !started_.empty()) return false;
    if (std::any_of(children_.begin(), children_.end(),
                    [](const Child& one) { return one.running() && one.result.is_rank; }))
      return false;
    known_ = pids_of_processes(kMarkerVariable, options_.marker);
    note_started();
    return started_.empty() &&
           std::none_of(children_.begin(), children_.end(), [](const Child& one) {
             return one.running() && has_living_child(one.pid());
           });
  }
  void note_started() {
    for (const pid_t pid : known_)
      if (!started_.contains(pid) &&
          std::none_of(children_.begin(), children_.end(),
                       [&](const Child& one) { return one.pid() == pid; }) &&
          has_rank(pid))
        started_.insert(pid);
    std::erase_if(started_, [](pid_t pid) { return !is_alive(pid); });
    had_started_ = had_started_ || !started_.empty();
  }
  void end_deserted() {
    outcome_.states = states_of_processes(kMarkerVariable, options_.marker);
    outcome_.deserted = true;
    stop(SIGTERM);
  }
  /// Its number may be another's by now.
  [[nodiscard]] bool is_still_there(pid_t pid) const {
    const auto now = pids_of_processes(kMarkerVariable, options_.marker);
    return std::find(now.begin(), now.end(), pid) != now.end();
  }
  void end_stopped(pid_t pid) {
    outcome_.states = states_of_processes(kMarkerVariable, options_.marker);
    outcome_.stopped = pid;
    stop(SIGTERM);
  }

  void stop(int signal) {
    stopping_ = true;
    signal_all(signal);
    arm(options_.grace, &Start::kill_now);
  }

  void kill_now() {
    if (++kill_rounds_ > kMaxKillRounds) {
      // Not even KILL ends a process that the kernel holds; it is reported as left over.
      for (auto& child : children_) child.abandon();
      return;
    }
    signal_all(SIGKILL);
    // Processes made while the list was read are met in the next round.
    arm(kKillRound, &Start::kill_now);
  }

  void signal_all(int signal) {
    if (!any_running()) return;
    for (const auto& child : children_) child.signal_group(signal);
    for (const auto& process : started_processes()) kill(process.pid, signal);
    if (options_.kill_elsewhere) options_.kill_elsewhere();
  }

  /// Those that carry the marker, and all others below this process where none is to be kept.
  [[nodiscard]] std::vector<ProcessInfo> started_processes() {
    auto all = marked_processes(options_.marker);
    if (!adoption_) return all;
    reap_adopted();
    std::set<pid_t> known;
    for (const auto& process : all) known.insert(process.pid);
    for (auto& process : adoption_->processes())
      if (!known.contains(process.pid)) all.push_back(std::move(process));
    return all;
  }
  /// The ends of the commands themselves are waited for by the loop.
  void reap_adopted() {
    if (!adoption_) return;
    Adoption::reap([this](pid_t pid) {
      return std::any_of(children_.begin(), children_.end(), [pid](const Child& child) {
        return child.pid() == pid && child.running();
      });
    });
  }

  /// What outlives its launcher: file servers of containers need a moment to unmount, anything else
  /// is ended.
  void end_left_overs() {
    timer_.cancel();
    question_.cancel();
    look_.cancel();
    auto left = started_processes();
    const auto deadline = Clock::now() + std::chrono::milliseconds(stopping_ ? 100 : 1000);
    while (!left.empty() && Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      left = started_processes();
    }
    for (const auto& process : left)
      outcome_.left_over.push_back(fmt::format("{} ({})", process.name, process.pid));
    for (int round = 0; round < 50 && !left.empty(); ++round) {
      for (const auto& process : left) kill(process.pid, round < 5 ? SIGTERM : SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      left = started_processes();
    }
  }

  /// Output that is already in the pipes.
  void drain() {
    interrupt_.close();
    for (auto& child : children_) child.end_reading();
    io_.restart();
    io_.poll();
    for (auto& child : children_) child.read_rest(options_);
  }

  const ProcessOptions& options_;
  asio::io_context io_;
  asio::steady_timer timer_;
  asio::steady_timer question_;
  asio::steady_timer look_;
  asio::posix::stream_descriptor interrupt_;
  Clock::time_point began_;
  std::list<Child> children_;
  ProcessOutcome outcome_;
  std::optional<Adoption> adoption_;
  bool stopping_ = false;
  int kill_rounds_ = 0;
  std::vector<pid_t> known_;  ///< marked processes
  /// A process that was stopped at so many looks in turn, and nothing else in between.
  struct Stopped {
    int looks = 0;
    std::uint64_t switches = 0;
  };
  std::map<pid_t, Stopped> seen_stopped_;
  std::set<pid_t> started_;   ///< ranks that are alive, the commands' own processes left out
  bool had_started_ = false;  ///< there was one
  int seen_deserted_ = 0;
  int looked_ = 0;
  int find_at_ = 1;
};

}  // namespace

bool ProcessOutcome::ok() const {
  return !timed_out && stopped == 0 && !deserted && !ended_early && interrupted_by == 0 &&
         first_failure() == nullptr && !results.empty();
}

namespace {

/// How much a command's end says of why all have ended.
int weight_of(const ProcessResult& result) {
  if (!result.start_error.empty()) return 5;
  if (result.exit_code == 0) return 0;
  // A rank that was killed after another had failed is not the cause.
  if (!result.by_itself) return result.signal == SIGTERM ? 1 : 2;
  const int signal = result.signal != 0 ? result.signal : signal_in(result.exit_code);
  // Others fail when a killed one is gone, some by writing to it.
  return signal != 0 && signal != SIGPIPE ? 4 : 3;
}

}  // namespace

const ProcessResult* ProcessOutcome::first_failure() const {
  const auto found = std::max_element(
      results.begin(), results.end(),
      [](const auto& one, const auto& other) { return weight_of(one) < weight_of(other); });
  return found == results.end() || weight_of(*found) == 0 ? nullptr : &*found;
}

ProcessOutcome run_processes(const std::vector<Command>& commands, const ProcessOptions& options) {
  DYN_ASSERT(!options.marker.empty(), "a launch needs a marker");
  return Start(options).run(commands);
}

}  // namespace dynamiccl
