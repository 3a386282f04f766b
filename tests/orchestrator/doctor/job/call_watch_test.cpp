// Probes on a real process: a copy of this one that calls what has the name of a collective.
#include "orchestrator/doctor/job/call_watch.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <csignal>

using namespace dynamiccl;

extern "C" __attribute__((noinline, used)) int MPI_Barrier(int ms) {
  usleep(static_cast<useconds_t>(ms) * 1000);
  return ms;
}

TEST_CASE("collectives are found by their names in a program's own symbols, and in nothing else") {
  CHECK(collectives_in("/proc/self/exe", {"MPI_Barrier"}).offsets.size() == 1);
  CHECK(collectives_in("/proc/self/exe", {}).offsets.empty());
  CHECK(collectives_in("/proc/self/maps", {"MPI_Barrier"}).offsets.empty());
  CHECK(collectives_in("/no/such/file", {"MPI_Barrier"}).offsets.empty());
}

TEST_CASE("a process's time in collectives is counted from outside, and nothing is left there") {
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    for (;;) MPI_Barrier(10), usleep(30000);
  }
  std::vector<LiveRank> ranks(1);
  ranks[0].pid = pid;
  ranks[0].looks.resize(1);
  ranks[0].looks[0].stack.kind = CallKind::collective;
  ranks[0].looks[0].stack.call = "MPI_Barrier";
  std::string problem;
  {
    CallWatch watch(ranks);
    problem = watch.problem();
    for (int i = 0; i < 3; ++i) watch.watch(0.5, ranks);
  }
  int status = 0;
  CHECK(waitpid(pid, &status, WNOHANG) == 0);  // it goes on
  kill(pid, SIGKILL);
  waitpid(pid, &status, 0);
  if (!problem.empty()) SKIP(problem);
  REQUIRE(ranks[0].calls.size() == 3);
  const auto& last = ranks[0].calls.back();
  CHECK(last.known);
  CHECK(last.calls > 0);
  CHECK(last.inside_s > 0.01);
  CHECK(last.inside_s < last.seconds);
}

TEST_CASE("a rank without a collective's symbols is not watched, with the reason") {
  std::vector<LiveRank> ranks(1);
  ranks[0].pid = 1 << 22;  // above what the kernel gives
  CallWatch watch(ranks);
  CHECK_FALSE(watch.problem().empty());
  watch.watch(0.1, ranks);
  CHECK(ranks[0].calls.empty());
}
