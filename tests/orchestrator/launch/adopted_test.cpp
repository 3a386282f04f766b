#include "orchestrator/launch/adopted.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <fstream>
#include <thread>

#include "containers/limit_mark.hpp"
#include "containers/local_ranks.hpp"
#include "core/vocabulary/pid_namespace.hpp"
#include "orchestrator/launch/identity.hpp"
#include "orchestrator/launch/process.hpp"
#include "tests/containers/support.hpp"

using namespace dynamiccl;

namespace {

/// A command that leaves three behind, each with its number in a file: one in a session of its own
/// without a variable, a daemon of a daemon, and one that no signal but KILL ends.
Command leaves_daemons(const std::string& folder) {
  return {
      {"/bin/sh", "-c",
       "cd '" + folder +
           "' && (setsid env -i sh -c 'echo $$ > one; exec sleep 7771' &)\n"
           "(setsid env -i sh -c '(setsid sh -c \"echo \\$\\$ > two; exec sleep 7771\" &) ' &)\n"
           "(setsid env -i sh -c 'trap \"\" TERM INT HUP QUIT; echo $$ > three; "
           "while :; do sleep 0.2; done' &)\n"
           "until [ -s one ] && [ -s two ] && [ -s three ]; do sleep 0.05; done"},
      {}};
}

std::vector<pid_t> left_of(const std::string& folder) {
  std::vector<pid_t> pids;
  for (const char* name : {"/one", "/two", "/three"}) {
    pid_t pid = 0;
    std::ifstream(folder + name) >> pid;
    REQUIRE(pid > 0);
    // A zombie is over.
    if (start_ticks_of(std::to_string(pid))) pids.push_back(pid);
  }
  return pids;
}

ProcessOptions options_with(bool keeps_none) {
  ProcessOptions options;
  options.marker = random_uuid();
  options.keeps_none = keeps_none;
  return options;
}

}  // namespace

TEST_CASE("nothing of a command is left, whatever session, environment or signals it has") {
  const TempFolder folder;
  const auto outcome = run_processes({leaves_daemons(folder.path())}, options_with(true));
  CHECK(outcome.ok());
  CHECK(outcome.left_over.size() >= 3);
  CHECK(left_of(folder.path()).empty());
}

TEST_CASE("what had been started before a command is none of it") {
  const TempFolder folder;
  const pid_t before = fork();
  if (before == 0) {
    setsid();
    for (;;) pause();
  }
  const auto outcome = run_processes({leaves_daemons(folder.path())}, options_with(true));
  CHECK(outcome.ok());
  CHECK(left_of(folder.path()).empty());
  CHECK(start_ticks_of(std::to_string(before)));
  kill(before, SIGKILL);
  waitpid(before, nullptr, 0);
}

TEST_CASE("processes of a dead owner are found without a session, variables or a parent") {
  const TempFolder folder;
  if (own_limit_mark() == 0) SKIP("when this process began is not known by the machine's clock");
  // The owner is killed in the middle of its command.
  const pid_t owner = fork();
  if (owner == 0) {
    auto command = leaves_daemons(folder.path());
    command.argv.back() += "\nsleep 7772";
    run_processes({command}, options_with(true));
    _exit(0);
  }
  const auto begun = [&] {
    for (const char* name : {"/one", "/two", "/three"}) {
      pid_t pid = 0;
      std::ifstream(folder.path() + name) >> pid;
      if (pid == 0) return false;
    }
    return true;
  };
  for (int i = 0; i < 6000 && !begun(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const auto pids = left_of(folder.path());
  CHECK(pids.size() == 3);
  // Of a live owner nothing is taken.
  for (const pid_t pid : pids) CHECK_FALSE(has_mark_of_the_dead(pid));
  kill(owner, SIGKILL);
  int status = 0;
  waitpid(owner, &status, 0);
  for (const pid_t pid : pids) CHECK(has_mark_of_the_dead(pid));
  const auto ended = end_marked_processes("");
  CHECK(ended.size() >= 3);
  CHECK(left_of(folder.path()).empty());
}
