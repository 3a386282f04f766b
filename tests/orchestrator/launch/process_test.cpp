#include "orchestrator/launch/process.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "core/vocabulary/program_signals.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/launch/identity.hpp"
#include "orchestrator/launch/interrupt.hpp"
#include "orchestrator/launch/process_states.hpp"
#include "tests/sanitizers.hpp"

using namespace dynamiccl;

namespace {

Command shell(const std::string& script) { return {{"/bin/sh", "-c", script}, {}}; }

ProcessOptions options_for(double timeout_s) {
  ProcessOptions options;
  options.timeout = Micros(timeout_s * 1e6);
  options.grace = Micros(0.3e6);
  options.marker = random_uuid();
  return options;
}

/// What an outcome that is not well has in it.
std::string words_of(const ProcessOutcome& outcome) {
  std::string text = std::string(outcome.timed_out ? "timed out " : "") +
                     (outcome.deserted ? "deserted " : "") + "stopped " +
                     std::to_string(outcome.stopped) + " by " +
                     std::to_string(outcome.interrupted_by);
  for (const auto& result : outcome.results)
    text += "\ncode " + std::to_string(result.exit_code) + " signal " +
            std::to_string(result.signal) + " " + result.start_error + result.stderr_tail;
  for (const auto& state : outcome.states) text += "\n" + state;
  return text;
}

/// Zombies wait for whoever adopted them; they run no more.
bool alive(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(stat, text)) return false;
  return text.substr(text.rfind(')') + 2, 1) != "Z";
}

std::vector<pid_t> pids_in(const std::string& text) {
  std::vector<pid_t> pids;
  for (const auto& word : split(std::string(trim(text)), '\n'))
    if (!word.empty()) pids.push_back(std::stoi(word));
  return pids;
}

}  // namespace

TEST_CASE("a held input says its line and stays open, another one is empty") {
  Command held = shell("IFS= read -r line; echo \"got $line\"; timeout 0.5 cat; echo $?");
  held.input = "a secret\n";
  const Command none = shell("cat; echo $?");
  const auto outcome = run_processes({held, none}, options_for(10));
  REQUIRE(outcome.results.size() == 2);
  CHECK(outcome.results[0].stdout_tail == "got a secret\n124\n");
  CHECK(outcome.results[1].stdout_tail == "0\n");
}

TEST_CASE("processes ignore no signal that this program does", "[safety]") {
  // But SIGCHLD, without which this program could not wait for them.
  std::vector<int> ignored;
  for (const int number : kChildDefaults)
    if (number != SIGCHLD) ignored.push_back(number);
  std::vector<void (*)(int)> before;
  for (const int number : ignored) before.push_back(signal(number, SIG_IGN));
  const auto outcome = run_processes({shell("grep SigIgn /proc/self/status")}, options_for(10));
  for (std::size_t i = 0; i < ignored.size(); ++i) signal(ignored[i], before[i]);
  REQUIRE(outcome.results.size() == 1);
  const std::string& line = outcome.results[0].stdout_tail;
  INFO(line);
  REQUIRE(line.starts_with("SigIgn:\t"));
  const auto mask = std::stoull(line.substr(8), nullptr, 16);
  for (const int number : ignored) CHECK((mask >> (number - 1) & 1U) == 0);
}

TEST_CASE("a held input that cannot be opened is named, an empty one never stands in its place") {
  // By a pipe it asks whether an object's memory is there, and takes Boost's exceptions for wrong.
  if (testing::kAddressSanitizer)
    SKIP("the sanitizer that checks objects' types (vptr) opens files itself");
  Command held = shell("IFS= read -r line; echo \"got $line\"");
  held.input = "a secret\n";
  rlimit usual{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &usual) == 0);
  const auto open =
      static_cast<rlim_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
  std::vector<ProcessResult> results;
  // From too few for a loop to enough for all: in between the input alone is too much.
  for (rlim_t more = 0; more < 32; ++more) {
    const rlimit tight{open + more, usual.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &tight) == 0);
    try {
      const auto outcome = run_processes({held}, options_for(300));
      // Nobody waits for what was never started.
      CHECK_FALSE(outcome.timed_out);
      results.insert(results.end(), outcome.results.begin(), outcome.results.end());
    } catch (const std::exception&) {
      // The loop's own.
    }
    REQUIRE(setrlimit(RLIMIT_NOFILE, &usual) == 0);
  }
  CHECK(std::any_of(results.begin(), results.end(), [](const ProcessResult& result) {
    return result.start_error == "/bin/sh: its input cannot be opened: Too many open files";
  }));
  for (const auto& result : results)
    CHECK((result.stdout_tail == "got a secret\n" || result.exit_code != 0 ||
           !result.start_error.empty()));
}

TEST_CASE("output, exit codes and added variables of a command come back") {
  Command command = shell("echo out $GREETING; echo err >&2; exit 3");
  command.environment["GREETING"] = "hello";
  const auto outcome = run_processes({command}, options_for(10));
  REQUIRE(outcome.results.size() == 1);
  CHECK(outcome.results[0].stdout_tail == "out hello\n");
  CHECK(outcome.results[0].stderr_tail == "err\n");
  CHECK(outcome.results[0].exit_code == 3);
  CHECK_FALSE(outcome.ok());
  CHECK(outcome.first_failure()->exit_code == 3);
}

TEST_CASE("variables whose names begin alike reach a command, each with its value") {
  // Long enough for memory of its own, and shorter than the name that begins with it: a sanitizer
  // sees who reads beyond it.
  REQUIRE(setenv("DYNAMICCL_TEST_SHORT", "1", 1) == 0);
  Command command = shell("echo $DYNAMICCL_TEST_SHORT $DYNAMICCL_TEST_SHORT_AND_LONG");
  command.environment["DYNAMICCL_TEST_SHORT_AND_LONG"] = "2";
  CHECK(run_processes({command}, options_for(10)).results[0].stdout_tail == "1 2\n");
  command.environment["DYNAMICCL_TEST_SHORT"] = "3";
  CHECK(run_processes({command}, options_for(10)).results[0].stdout_tail == "3 2\n");
  unsetenv("DYNAMICCL_TEST_SHORT");
}

TEST_CASE("who wants to look around is called again and again while commands run") {
  const std::string file =
      (std::filesystem::temp_directory_path() / ("dyn-looks-" + std::to_string(getpid()))).string();
  auto options = options_for(60);
  options.stopped_limit = Micros(0.15e6);
  int looks = 0;
  options.on_look = [&] {
    if (++looks == 3) std::ofstream{file};
  };
  const auto outcome =
      run_processes({shell("until [ -e " + file + " ]; do sleep 0.02; done")}, options);
  std::filesystem::remove(file);
  INFO(words_of(outcome));
  CHECK(outcome.ok());
  CHECK(looks >= 3);
}

TEST_CASE("a command that ends by a signal says which") {
  const auto outcome = run_processes({shell("kill -SEGV $$")}, options_for(10));
  CHECK(outcome.results[0].signal == SIGSEGV);
  CHECK(outcome.results[0].exit_code == -1);
}

TEST_CASE("a missing program is a result, not an exception") {
  const auto outcome = run_processes({{{"no-such-program-here"}, {}}}, options_for(10));
  CHECK(outcome.results[0].start_error == "no-such-program-here: not found in PATH");
  CHECK_FALSE(outcome.ok());
}

TEST_CASE("long output keeps its end and blocks nobody") {
  auto options = options_for(30);
  options.kept_bytes = 1000;
  const auto outcome = run_processes({shell("seq 1 200000; seq 1 200000 >&2; echo last")}, options);
  INFO(words_of(outcome));
  CHECK(outcome.ok());
  CHECK(outcome.results[0].stdout_tail.size() == 1000);
  CHECK(outcome.results[0].stdout_tail.ends_with("200000\nlast\n"));
  CHECK(outcome.results[0].stderr_tail.ends_with("200000\n"));
}

TEST_CASE("what a command said last comes back, however slowly it is read") {
  auto options = options_for(60);
  std::size_t heard = 0;
  // Longer for each piece than a command takes to write all and end.
  options.on_stdout = [&](const std::string& piece) {
    heard += piece.size();
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
  };
  const auto outcome = run_processes({shell("head -c 200000 /dev/zero; echo last")}, options);
  INFO(words_of(outcome));
  CHECK(outcome.ok());
  CHECK(heard == 200005);
  CHECK(outcome.results[0].stdout_tail.ends_with("last\n"));
}

TEST_CASE("who still writes holds up no end") {
  const auto options = options_for(60);
  // Without the marker it is nobody's; it ends when nobody reads any more.
  const auto outcome = run_processes({shell("env -i yes & echo begun")}, options);
  CHECK(outcome.results[0].exit_code == 0);
  CHECK_FALSE(outcome.timed_out);
  // The shell ends at once; who waited for the writer would wait for ever.
  CHECK(outcome.duration < options.timeout);
}

TEST_CASE("a timeout ends grandchildren, also those in another session or deaf to TERM") {
  std::vector<pid_t> pids;
  // As long as a busy machine takes to have started them all.
  for (double timeout_s = 0.5; pids.size() < 3 && timeout_s < 100; timeout_s *= 2) {
    const auto outcome = run_processes(
        {shell("setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' & "
               "sleep 600 & echo $!; trap '' TERM; echo $$; while :; do sleep 1; done")},
        options_for(timeout_s));
    CHECK(outcome.timed_out);
    CHECK_FALSE(outcome.ok());
    pids = pids_in(outcome.results[0].stdout_tail);
    for (const pid_t pid : pids) CHECK_FALSE(alive(pid));
  }
  CHECK(pids.size() == 3);
}

TEST_CASE("what outlives its launcher is ended and named") {
  const auto outcome =
      run_processes({shell("setsid sleep 300 >/dev/null 2>&1 & until grep -q sleep /proc/$!/comm; "
                           "do :; done; echo $!")},
                    options_for(60));
  REQUIRE(outcome.left_over.size() == 1);
  CHECK(outcome.left_over[0].starts_with("sleep ("));
  CHECK_FALSE(alive(pids_in(outcome.results[0].stdout_tail).at(0)));
}

TEST_CASE("one failed command ends the others after the grace, and is the cause") {
  const auto outcome =
      run_processes({shell("sleep 600"), shell("exit 7"), shell("sleep 600")}, options_for(300));
  CHECK_FALSE(outcome.timed_out);
  REQUIRE(outcome.results.size() == 3);
  for (const std::size_t other : {0, 2}) CHECK(outcome.results[other].signal != 0);
  REQUIRE(outcome.first_failure() != nullptr);
  CHECK(outcome.first_failure()->exit_code == 7);
}

TEST_CASE("a killed command is the cause, not one that fails because of it") {
  auto options = options_for(300);
  options.grace = Micros(60e6);  // both end by themselves, however late
  const auto outcome = run_processes({shell("exit 1"), shell("kill -KILL $$")}, options);
  REQUIRE(outcome.first_failure() == &outcome.results[1]);
  CHECK(outcome.results[1].signal == SIGKILL);
  CHECK(outcome.results[1].by_itself);
}

TEST_CASE("commands run side by side and none holds another's pipe") {
  std::string folder = std::filesystem::temp_directory_path() / "beside-XXXXXX";
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  // Each waits until all are there.
  const std::vector<Command> commands(
      6, shell("cd " + folder +
               "; : >$$; until [ $(ls | wc -l) -ge 6 ]; do sleep 0.02; done; "
               "echo done"));
  const auto outcome = run_processes(commands, options_for(300));
  std::filesystem::remove_all(folder);
  INFO(words_of(outcome));
  CHECK(outcome.ok());
  for (const auto& result : outcome.results) CHECK(result.stdout_tail == "done\n");
}

TEST_CASE("an interrupt ends the launch and is told apart from a failure") {
  const InterruptGuard guard;
  std::thread interrupter([pid = getpid()] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(pid, SIGINT);
  });
  const auto outcome = run_processes({shell("sleep 600")}, options_for(300));
  interrupter.join();
  CHECK(outcome.interrupted_by == SIGINT);
  CHECK_FALSE(outcome.timed_out);
  CHECK_FALSE(outcome.ok());
  CHECK(interrupt_signal() == SIGINT);
}

TEST_CASE("signals that stand before the start keep it from lasting") {
  const InterruptGuard guard;
  raise(SIGTERM);
  const auto outcome = run_processes({shell("sleep 600")}, options_for(300));
  CHECK(outcome.interrupted_by == SIGTERM);
  CHECK_FALSE(outcome.timed_out);
}

TEST_CASE("the part that lives elsewhere is ended too") {
  auto options = options_for(0.3);
  int calls = 0;
  options.kill_elsewhere = [&] { ++calls; };
  run_processes({shell("sleep 60")}, options);
  CHECK(calls >= 1);
  calls = 0;
  auto fine = options_for(60);
  fine.kill_elsewhere = [&] { ++calls; };
  run_processes({shell("true")}, fine);
  CHECK(calls == 0);
}

TEST_CASE("two hundred short launches in a row lose no exit and leave no descriptor") {
  const auto count = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  run_processes({shell("exit 0")}, options_for(10));
  const auto before = count();
  for (int i = 0; i < 200; ++i) {
    const auto outcome = run_processes({shell("exit 0"), shell("exit 0")}, options_for(10));
    REQUIRE(outcome.ok());
  }
  CHECK(count() == before);
}

namespace {

/// A shell that says its number and stops itself.
Command stopping_itself(const std::string& then) {
  return shell("echo $$; kill -STOP $$; " + then);
}

}  // namespace

TEST_CASE("a process that a signal has stopped ends its start, and is named", "[safety][d-13]") {
  auto options = options_for(60);
  options.stopped_limit = Micros(0.3e6);
  const auto outcome = run_processes({shell("exec sleep 60"), stopping_itself("true")}, options);
  CHECK_FALSE(outcome.ok());
  CHECK_FALSE(outcome.timed_out);
  REQUIRE(outcome.results.size() == 2);
  CHECK(pids_in(outcome.results[1].stdout_tail) == std::vector{outcome.stopped});
  const auto said = "(pid " + std::to_string(outcome.stopped) + "): stopped";
  CHECK(std::any_of(outcome.states.begin(), outcome.states.end(), [&](const std::string& state) {
    return state.find(said) != std::string::npos;
  }));
  CHECK_FALSE(alive(outcome.stopped));
}

TEST_CASE("a stopped process of somebody else ends no start, whatever of it names the start",
          "[safety][d-13]") {
  auto options = options_for(60);
  options.stopped_limit = Micros(0.3e6);
  // One has the marker in its arguments, as a pager of the launch's records; the other is another
  // user's, who read it there.
  std::vector<std::vector<std::string>> others{
      {"/bin/sh", "-c", "kill -STOP $$", options.marker + "/rank0.jsonl"}};
  if (geteuid() == 0)
    others.push_back({"setpriv", "--reuid=12345", "--clear-groups", "env",
                      std::string(kMarkerVariable) + "=" + options.marker, "/bin/sh", "-c",
                      "kill -STOP $$"});
  std::vector<pid_t> stopped;
  for (auto& words : others) {
    std::vector<char*> argv;
    for (auto& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      execvp(argv[0], argv.data());
      _exit(127);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, WUNTRACED) == child);
    REQUIRE(WIFSTOPPED(status));
    stopped.push_back(child);
  }
  const auto outcome = run_processes({shell("sleep 3")}, options);
  CHECK(outcome.stopped == 0);
  INFO(words_of(outcome));
  CHECK(outcome.ok());
  for (const pid_t child : stopped) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
}

TEST_CASE("a slow process is not taken for stopped, nor one that is continued", "[safety][d-13]") {
  auto options = options_for(60);
  options.stopped_limit =
      Micros(2e6);  // fifteen looks in turn, of which a busy machine makes fewer
  // One sleeps, one is busy, one is stopped and continued by another, for longer in all than it may
  // be stopped at once.
  const auto again = shell(
      "sleep 60 & for i in $(seq 30); do kill -STOP $!; sleep 0.1; kill -CONT $!; sleep 0.1; done; "
      "kill $!; exit 0");
  const auto busy = shell("end=$(($(date +%s) + 5)); while [ $(date +%s) -lt $end ]; do :; done");
  const auto outcome = run_processes({shell("sleep 5"), busy, again}, options);
  CHECK(outcome.stopped == 0);
  INFO(words_of(outcome));
  CHECK(outcome.ok());
}

TEST_CASE("who is continued between two looks is not taken for stopped", "[safety][d-13]") {
  auto options = options_for(300);
  options.stopped_limit = Micros(0.3e6);
  pid_t pid = 0;
  options.on_stdout = [&](const std::string& text) { pid = std::stoi(text); };
  const auto file = std::filesystem::temp_directory_path() / ("goes-on-" + options.marker);
  int looks = 0;
  options.on_look = [&] {
    if (pid == 0 || ++looks > 40) return;
    kill(pid, SIGCONT);
    // It has gone on when it writes.
    std::filesystem::remove(file);
    for (int i = 0; i < 60000 && !std::filesystem::exists(file); ++i) usleep(1000);
    kill(pid, looks == 40 ? SIGTERM : SIGSTOP);
    for (int i = 0; looks < 40 && i < 60000 && !is_stopped(pid); ++i) usleep(1000);
  };
  const auto outcome = run_processes(
      {shell("trap 'exit 0' TERM; echo $$; while :; do : >" + file.string() + "; done")}, options);
  std::filesystem::remove(file);
  INFO(words_of(outcome));
  CHECK(looks >= 40);
  CHECK(outcome.stopped == 0);
  CHECK(outcome.ok());
}

TEST_CASE("a launcher that outlives all it has started is ended, and others are not", "[safety]") {
  auto options = options_for(60);
  options.stopped_limit = Micros(0.6e6);
  // Its rank is there for long enough to be seen.
  const auto outcome = run_processes({shell("PMI_RANK=0 sleep 3; exec sleep 60")}, options);
  CHECK(outcome.deserted);
  CHECK_FALSE(outcome.ok());
  CHECK_FALSE(outcome.timed_out);
  // Nobody was started, or no rank, or somebody is there, or a moment passes between two, which on
  // a busy machine is a long one.
  options.stopped_limit = Micros(2e6);
  for (const char* other : {"exec sleep 3", "sleep 1; exec sleep 4", "PMI_RANK=0 sleep 3; true",
                            "export PMI_RANK=0; for i in 1 2 3 4 5 6; do sleep 0.5; done; true",
                            "export PMI_RANK=0; sleep 1; env -i sleep 4; true"}) {
    INFO(other);
    const auto well = run_processes({shell(other)}, options);
    INFO(words_of(well));
    CHECK_FALSE(well.deserted);
    CHECK(well.ok());
  }
}

TEST_CASE("a rank is not ended because what it started in passing has gone", "[safety]") {
  auto options = options_for(60);
  options.stopped_limit = Micros(2e6);
  Command rank = shell("export DYNAMICCL_RANK=0; sleep 1; exec sleep 4");
  rank.is_rank = true;
  const auto outcome = run_processes({rank, rank}, options);
  CHECK_FALSE(outcome.deserted);
  INFO(words_of(outcome));
  CHECK(outcome.ok());
}
