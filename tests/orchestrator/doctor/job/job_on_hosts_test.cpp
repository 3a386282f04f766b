#include "orchestrator/doctor/job/job_on_hosts.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>

#include "core/vocabulary/error.hpp"
#include "tests/orchestrator/doctor/job/made_jobs.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;

namespace {

/// What a host prints of its ranks for who joins the hosts.
std::string printed(const LiveJob& job, const std::vector<JobRemark>& remarks = {}) {
  auto told = to_json(JobLook{job, verdict(job), remarks, kLooks, false, 0.5});
  told["job"] = looks_json(job);
  return told.dump();
}

}  // namespace

TEST_CASE("ranks of several hosts are judged as one job: who is held is on another one") {
  const auto waits = [](int) { return in_call("MPI_Allreduce"); };
  LiveJob here = job_of({rank_of(0, waits), rank_of(1, waits)});
  LiveJob there = job_of({rank_of(
      2, [](int) { return outside('S', "asleep"); }, 0)});
  here.world = there.world = 3;
  there.all_here = here.all_here = false;
  there.calls_problem = "it takes a privilege";
  // Each host by itself sees no more than half of it.
  CHECK(verdict(here).id == "same-call");
  CHECK(verdict(there).id == "idle");
  const auto all =
      joined_look({look_of_host("node1", printed(here)),
                   look_of_host("node2", printed(there, {{"memlock", "is small", "raise it"}}))},
                  {"node3 was not looked at: no route"});
  CHECK(all.verdict.state == JobState::hung);
  CHECK(all.verdict.id == "held");
  CHECK(all.verdict.ranks == std::vector{2});
  CHECK(all.verdict.next.front().find("-p 102` on node2") != std::string::npos);
  CHECK(all.verdict.evidence.back() == "node3 was not looked at: no route");
  REQUIRE(all.remarks.size() == 1);
  CHECK(all.remarks.front().says == "node2: is small");
  CHECK(all.job.calls_problem == "node2: it takes a privilege");
  CHECK(all.job.world == 3);
}

TEST_CASE("looks of hosts that ended at unlike times are cut to the shortest, one rank is one") {
  const auto stopped = [](int) {
    RankLook look;
    look.state = 'T';
    return look;
  };
  LiveJob brief = job_of({rank_of(1, stopped)});
  brief.ranks.front().looks.resize(2);
  brief.seconds = kPause;
  // Two names of one machine.
  LiveJob whole =
      job_of({rank_of(0, [](int i) { return in_call("MPI_Allreduce", i); }), rank_of(1, stopped)});
  brief.world = whole.world = 2;
  const auto all =
      joined_look({look_of_host("a", printed(brief)), look_of_host("b", printed(whole))}, {});
  REQUIRE(all.job.ranks.size() == 2);
  CHECK(all.job.ranks[1].host == "a");
  CHECK(all.job.ranks[0].looks.size() == 2);
  CHECK(all.verdict.id == "stopped");
  CHECK(all.verdict.ranks == std::vector{1});
  CHECK(all.verdict.next.front() == "kill -CONT 101 on a");
  CHECK_THROWS_AS(look_of_host("c", "{\"state\": \"hung\"}"), Error);
  CHECK_THROWS_AS(look_of_host("c", "bash: dynamiccl: not found"), Error);
}

TEST_CASE("a host whose answer is no look is a problem of this host alone") {
  const LiveJob job = job_of({rank_of(0, [](int i) { return in_call("MPI_Allreduce", i); })});
  std::vector<JobLook> looks;
  NodeResult answer;
  answer.exit_code = 0;
  answer.out = printed(job);
  CHECK(take_answer("a", answer, looks).empty());
  answer.out = "Welcome to b\n" + answer.out;
  const std::string why = take_answer("b", answer, looks);
  CHECK(why.find("b says what is no look at a job") != std::string::npos);
  CHECK(why.find("print words of its own?") != std::string::npos);
  answer.exit_code = 1;
  answer.err = "first\nno route\n";
  CHECK(take_answer("c", answer, looks) == "c was not looked at: no route");
  REQUIRE(looks.size() == 1);
  CHECK(looks.front().job.ranks.front().host == "a");
}

TEST_CASE("one rank that is two processes is said, the same process seen twice is one") {
  const auto runs = [](int i) { return in_call("MPI_Allreduce", i); };
  LiveJob one = job_of({rank_of(0, runs), rank_of(1, runs)});
  one.ranks[0].identity = "boot 10 1";
  one.ranks[1].identity = "boot 11 2";
  LiveJob other = one;
  // The same two in another PID namespace.
  for (auto& rank : other.ranks) rank.pid += 5000;
  const auto joined = [&] {
    return joined_look({look_of_host("a", printed(one)), look_of_host("b", printed(other))}, {});
  };
  CHECK(joined().job.ranks.size() == 2);
  CHECK(joined().verdict.evidence == verdict(joined().job).evidence);
  other.ranks[1].identity = "another 11 2";
  const auto all = joined();
  REQUIRE(all.job.ranks.size() == 3);
  CHECK(all.verdict.evidence.back() ==
        "rank 1 is process 101 on a and 5101 on b: are these two jobs?");
  one.marker = other.marker = "MASTER_PORT=1";
  CHECK(joined().job.ranks.size() == 3);
  other.marker = "MASTER_PORT=2";
  CHECK_THROWS_WITH(joined(), Catch::Matchers::EndsWith(
                                  "b with MASTER_PORT=2; name one, as in --job MASTER_PORT=1"));
}

TEST_CASE("what is to be typed for a process says on which host") {
  const auto next_of = [](LiveJob job) {
    for (auto& rank : job.ranks) rank.host = "node" + std::to_string(rank.rank);
    for (auto& ended : job.ended) ended.host = "node1";
    const auto said = verdict(job);
    return said.next.front() + '\n' + said.evidence.front();
  };
  const auto traced = [](int) {
    RankLook look;
    look.state = 't';
    return look;
  };
  const auto has = [](const std::string& text, const std::string& words) {
    INFO(text);
    CHECK(text.find(words) != std::string::npos);
  };
  has(next_of(job_of({rank_of(0, moves), rank_of(1, traced, 0)})), "/proc/101/status on node1");
  has(next_of(job_of({rank_of(0, stands), rank_of(1, stands)})),
      "`gdb -p 100` on node0 in a build");
  has(next_of(job_of({rank_of(0, moves, 0.3, 0.8), rank_of(1, moves, 0.9, 0.1)})),
      "(taskset -pc 100; top on node0); bind ranks apart, or renice -n 0 -p 100 on node0");
  auto job = job_of({rank_of(0, stands), rank_of(2, stands)});
  job.world = 3;
  job.ended = {{77, "job", 0, SIGKILL}};
  has(next_of(job), "process 77 on node1 (job) was ended by signal 9");
  auto unheard = job_of({rank_of(0, stands), rank_of(1, stands)});
  unheard.ranks[1].sockets = {{"10.0.0.2:4711", false, 1448, 5}};
  has(next_of(unheard), "ip route get 10.0.0.2 on node1; ");
  const auto stopped = [](int) {
    RankLook look;
    look.state = 'T';
    return look;
  };
  auto both = job_of({rank_of(0, stopped), rank_of(1, stopped), rank_of(2, stopped)});
  both.ranks[0].host = both.ranks[2].host = "a";
  both.ranks[1].host = "b";
  CHECK(verdict(both).next ==
        std::vector<std::string>{"kill -CONT 100 102 on a", "kill -CONT 101 on b"});
  auto wait = job_of({on_gpu(0, 0.4, 40, 0), on_gpu(1, 0, 40, 0)});
  for (auto& rank : wait.ranks) rank.host = "node" + std::to_string(rank.rank);
  const auto said = verdict(wait);
  REQUIRE(said.id == "gpu-wait");
  has(said.next.back(), "cuda-gdb -p 100 -batch -ex 'info cuda kernels' on node0");
}

TEST_CASE("a host whose ranks are gone is no host that was not looked at") {
  const auto waits = [](int) { return in_call("MPI_Allreduce"); };
  LiveJob here = job_of({rank_of(0, waits), rank_of(1, waits)});
  here.world = 3;
  LiveJob none;
  none.ended = {{77, "job", 0, SIGKILL}};
  auto told = to_json(JobLook{none, {}, {}, 0, false, 0});
  told["job"] = looks_json(none);
  told["says"] = "no process has this variable";
  const auto joined = [&](const std::vector<std::string>& problems) {
    return joined_look({look_of_host("near", printed(here)), look_of_host("far", told.dump())},
                       problems)
        .verdict;
  };
  const auto over = joined({});
  CHECK(over.id == "ended");
  CHECK(over.ranks == std::vector{2});
  CHECK(over.says == "rank 2 is over, and ranks 0 and 1 stand in MPI_Allreduce");
  CHECK(over.evidence.front().starts_with("process 77 on far (job) was ended by signal 9"));
  CHECK(over.evidence.back() == "far has no rank of this job: no process has this variable");
  // Where the third one may be was not looked at: a process that ended is no proof.
  const auto unknown = joined({"third was not looked at: code 255"});
  CHECK(unknown.id == "same-call");
  CHECK(unknown.says.starts_with("ranks 0 and 1 of 3 stand in MPI_Allreduce"));
  // Nor is a host's word that may not read the processes of others.
  none.partly = true;
  told["job"] = looks_json(none);
  CHECK(joined({}).id == "same-call");
  CHECK(joined({}).evidence.back().starts_with("far has no rank of this job"));
  // All hosts that were named have some: the rest may be on another one.
  const auto rest = joined_look({look_of_host("near", printed(here))}, {}).verdict;
  CHECK(rest.id == "same-call");
  CHECK(rest.says.starts_with("ranks 0 and 1 of 3 stand"));
}
