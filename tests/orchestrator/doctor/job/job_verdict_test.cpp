#include "orchestrator/doctor/job/job_verdict.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <limits>

#include "tests/orchestrator/doctor/job/made_jobs.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;

namespace {

struct Expected {
  JobState state;
  std::string id;
  std::vector<int> ranks;
};

void check(const LiveJob& job, const Expected& expected, const std::string& words = "") {
  const auto said = verdict(job);
  INFO(said.says);
  CHECK(said.state == expected.state);
  CHECK(said.id == expected.id);
  CHECK(said.ranks == expected.ranks);
  CHECK(said.says.find(words) != std::string::npos);
  CHECK(said.evidence.size() >= job.ranks.size());
}

}  // namespace

TEST_CASE("a job whose ranks move on in their calls is running, however much they wait") {
  check(job_of({rank_of(0, moves), rank_of(1, moves), rank_of(2, moves)}),
        {JobState::running, "moving", {}});
}

TEST_CASE("a stopped rank is told of whatever the others do, with what continues it") {
  const auto stopped = [](int) {
    RankLook look;
    look.state = 'T';
    return look;
  };
  const auto job = job_of({rank_of(0, moves), rank_of(1, stopped, 0), rank_of(2, stands)});
  check(job, {JobState::hung, "stopped", {1}}, "stopped by a signal");
  CHECK(verdict(job).next == std::vector<std::string>{"kill -CONT 101"});
  CHECK(is_settled(verdict(job), job));
  const auto traced = [](int) {
    RankLook look;
    look.state = 't';
    return look;
  };
  check(job_of({rank_of(0, moves), rank_of(1, traced, 0)}), {JobState::hung, "stopped", {1}},
        "held by a debugger");
  // Stopped for one look alone, as by somebody else's debugger.
  const auto once = [](int look) {
    RankLook one = moves(look);
    if (look == 3) one.state = 't';
    return one;
  };
  check(job_of({rank_of(0, moves), rank_of(1, once)}), {JobState::running, "moving", {}});
}

TEST_CASE("a rank that is over is named where the others stand, with the signal that ended it") {
  auto job = job_of({rank_of(0, stands), rank_of(2, stands)});
  job.world = 3;
  job.ended = {{77, "job", 0, SIGKILL}};
  check(job, {JobState::hung, "ended", {1}}, "rank 1 is over, and ranks 0 and 2 stand in MPI_All");
  CHECK(verdict(job).evidence.front().find("ended by signal 9") != std::string::npos);
  // One process that is over is not two ranks: those may be on another machine.
  auto more = job;
  more.world = 4;
  more.all_here = false;
  check(more, {JobState::hung, "same-call", {}}, "ranks 0 and 2 of 4 stand");
  CHECK(verdict(more).evidence.front().find("ended by signal 9") != std::string::npos);
  // A rank that two processes are is one.
  more.ranks.push_back(rank_of(2, stands));
  check(more, {JobState::hung, "same-call", {}}, "ranks 0 and 2 of 4 stand");
  // Others that go on do without it, and ranks of other machines are not missing.
  auto going = job_of({rank_of(0, moves), rank_of(2, moves)});
  going.world = 3;
  check(going, {JobState::running, "moving", {}});
  job.all_here = false;
  job.ended.clear();
  check(job, {JobState::hung, "same-call", {}});
}

TEST_CASE("ranks that stand in different calls are told apart, the fewest of them first") {
  const auto elsewhere = [](int) { return in_call("MPI_Barrier"); };
  check(job_of({rank_of(0, stands), rank_of(1, elsewhere), rank_of(2, stands)}),
        {JobState::hung, "other-call", {1}}, "ranks 0 and 2 in MPI_Allreduce, rank 1 in MPI_Ba");
  check(job_of({rank_of(0, stands), rank_of(1, elsewhere)}),
        {JobState::hung, "other-call", {0, 1}});
  check(job_of({rank_of(0, stands), rank_of(1, stands)}), {JobState::hung, "same-call", {}},
        "all ranks stand in MPI_Allreduce");
  // One reduces to another root: a third has left the call rightly, and stands in the next.
  const auto reduces = [](int) { return in_call("MPI_Reduce"); };
  check(job_of({rank_of(0, reduces), rank_of(1, stands), rank_of(2, reduces)}),
        {JobState::hung, "other-call", {}}, "rank 1 in MPI_Allreduce");
  // A sum whose parts go to all has no root, though its name ends with that of a call that has.
  const auto scatters = [](int) { return in_call("MPI_Reduce_scatter"); };
  check(job_of({rank_of(0, scatters), rank_of(1, stands), rank_of(2, scatters)}),
        {JobState::hung, "other-call", {1}}, "ranks 0 and 2 in MPI_Reduce_scatter");
  const auto receives = [](int) { return in_call("MPI_Recv", 1, CallKind::point_to_point); };
  check(job_of({rank_of(0, receives), rank_of(1, receives)}), {JobState::hung, "messages", {}});
}

TEST_CASE("a rank outside that does nothing holds the job, one that works may come") {
  check(job_of({rank_of(0, stands), rank_of(1, sleeps, 0.001)}), {JobState::hung, "held", {1}},
        "rank 0 waits in MPI_Allreduce for rank 1, which is not in it: asleep");
  check(job_of({rank_of(0, computes), rank_of(1, stands)}), {JobState::waiting, "waits-for", {0}},
        "in compute of job; it works");
  // A checkpoint that waits for its disk.
  const auto syncs = [](int) { return outside('D', "in a sync of /data/model"); };
  check(job_of({rank_of(0, syncs, 0.001), rank_of(1, stands)}),
        {JobState::waiting, "waits-for", {0}}, "it works on files");
  // Two are outside, and one of them does nothing.
  check(job_of({rank_of(0, stands), rank_of(1, computes), rank_of(2, sleeps, 0)}),
        {JobState::hung, "held", {2}});
  const auto in_python = [](int) {
    auto look = outside('R', "");
    look.stack.in_python = true;
    return look;
  };
  check(job_of({rank_of(0, stands), rank_of(1, in_python)}), {JobState::waiting, "waits-for", {1}},
        "in Python code");
}

TEST_CASE("a rank that the others wait for once, however long, is not late") {
  const auto works = [](int look) { return look < 2 ? moves(look) : computes(look); };
  const auto wait = [](int look) { return moves(std::min(look, 2)); };
  check(job_of({rank_of(0, works), rank_of(1, wait), rank_of(2, wait)}),
        {JobState::running, "moving", {}});
}

TEST_CASE("a rank that the others wait for again and again is late, with what it does meanwhile",
          "[B-30]") {
  const auto late = [](int look) { return look % 4 == 3 ? moves(look) : sleeps(look); };
  check(job_of({rank_of(0, moves), rank_of(1, late, 0.1), rank_of(2, moves)}),
        {JobState::slow, "late", {1}}, "it is asleep");
  const auto busy = [](int look) { return look % 4 == 3 ? moves(look) : computes(look); };
  const auto job = job_of({rank_of(0, busy), rank_of(1, moves)});
  check(job, {JobState::slow, "late", {0}}, "in compute of job");
  CHECK(verdict(job).next.front().starts_with("it computes"));
  // In the second half alone: an evaluation, a checkpoint.
  const auto once = [](int look) { return look < 4 ? moves(look) : computes(look); };
  check(job_of({rank_of(0, once), rank_of(1, moves)}), {JobState::running, "moving", {}});
  // Nobody gets a core: the one that is outside for some seconds may be any of them.
  check(job_of({rank_of(0, busy, 0.2, 0.7), rank_of(1, moves, 0.1, 0.8)}),
        {JobState::running, "moving", {}});
  // All of them outside as often: that is what they compute.
  check(job_of({rank_of(0, busy), rank_of(1, busy)}), {JobState::running, "moving", {}});
  // At a barrier they wait for what one does for all.
  const auto meets = [](int look) {
    return in_call("c10d::ProcessGroup::barrier", static_cast<std::uint64_t>(look) + 1);
  };
  check(job_of({rank_of(0, busy), rank_of(1, meets)}), {JobState::waiting, "waits-for", {0}});
  // Stages of a pipeline.
  const auto stage = [](int look) {
    return in_call("MPI_Recv", static_cast<std::uint64_t>(look) + 1, CallKind::point_to_point);
  };
  check(job_of({rank_of(0, busy), rank_of(1, stage)}), {JobState::running, "moving", {}});
}

TEST_CASE("a rank without a core is told from a machine on which none has one") {
  auto job = job_of({rank_of(0, moves, 0.3, 0.8), rank_of(1, moves, 0.9, 0.1)});
  job.ranks[0].nice = 15;
  check(job, {JobState::slow, "starved", {0}},
        "ready 80 % of the time and had no core, with a nic");
  // Who has more to do waits longer for a core on a busy machine, and is served no worse.
  const auto busy = [](int look) { return look % 4 == 3 ? moves(look) : computes(look); };
  check(job_of({rank_of(0, busy, 0.35, 0.63), rank_of(1, moves, 0.04, 0.1)}),
        {JobState::slow, "late", {0}}, "in compute of job");
  const auto all = job_of({rank_of(0, moves, 0.1, 0.9), rank_of(1, moves, 0.1, 0.8)});
  check(all, {JobState::running, "moving", {}});
  REQUIRE(remarks(all).size() == 1);
  CHECK(remarks(all).front().id == "busy-machine");
  for (int i = 0; i < kLooks; ++i)
    job.ranks[1].looks[static_cast<std::size_t>(i)].throttled_s = 0.5 * i;
  check(job, {JobState::slow, "throttled", {1}}, "CPU limit of a control group");
}

TEST_CASE("ranks that wait for their GPUs hang where NCCL launches no more and GPUs do nothing") {
  check(job_of({on_gpu(0, 0, 40, 0), on_gpu(1, 0, 40, 0)}), {JobState::hung, "same-call", {}},
        "all ranks wait for their GPUs in cudaStreamSynchronize and launch no collective any more");
  auto half = job_of({on_gpu(0, 0, 40, 0)});
  half.world = 2;
  half.all_here = false;
  check(half, {JobState::hung, "same-call", {}},
        "rank 0 of 2 waits for its GPU in cudaStreamSynchronize and launches no collective");
  // The same stack at every look, as in a loop of one wait, and yet the job goes on.
  check(job_of({on_gpu(0, 0, 40, 3), on_gpu(1, 0, 40, 3)}), {JobState::running, "moving", {}});
  // A GPU computes: an evaluation, a long step.
  check(job_of({on_gpu(0, 0.4, 40, 0), on_gpu(1, 0, 40, 0)}), {JobState::unknown, "gpu-wait", {}},
        "a long step and a hang look alike");
  // NVML's least number above none, which healthy jobs over sockets show.
  check(job_of({on_gpu(0, 0.01, 40, 0), on_gpu(1, 0, 40, 0)}), {JobState::unknown, "gpu-wait", {}});
  // RAS has counted for two seconds alone.
  auto shortly = job_of({on_gpu(0, 0, 40, 0), on_gpu(1, 0, 40, 0)});
  for (auto& rank : shortly.ranks)
    for (std::size_t i = 0; i + 3 < rank.looks.size(); ++i) rank.looks[i].launched = 0;
  check(shortly, {JobState::unknown, "gpu-wait", {}});
  // Neither NVML nor RAS tells.
  check(job_of({on_gpu(0, -1, 40, 0), on_gpu(1, -1, 40, 0)}), {JobState::unknown, "gpu-wait", {}});
  auto silent = job_of({on_gpu(0, 0, 0, 0), on_gpu(1, 0, 0, 0)});
  silent.ras_problem = "NCCL's RAS at localhost:28028 does not answer";
  check(silent, {JobState::unknown, "gpu-wait", {}});
  CHECK(verdict(silent).evidence.front() == silent.ras_problem);
}

TEST_CASE("ranks of which some wait for their GPUs are told from those in other calls") {
  const auto meets = rank_of(1, stands);
  check(job_of({on_gpu(0, 0.4, 40, 0), meets}), {JobState::unknown, "gpu-wait", {}},
        "rank 0 waits for its GPU in cudaStreamSynchronize: within 7 s");
  check(job_of({on_gpu(0, 0, 40, 0), meets}), {JobState::hung, "other-call", {0, 1}},
        "rank 1 in MPI_Allreduce");
}

TEST_CASE("a rank that evaluates alone on its GPU is waited for, and the others are not hung") {
  check(job_of({on_gpu(0, 0.8, 40, 0), rank_of(1, sleeps, 0)}),
        {JobState::waiting, "waits-for", {0}},
        "rank 0's GPU works in cudaStreamSynchronize, and rank 1 is outside of calls: asleep");
  check(job_of({on_gpu(0, 0, 40, 0), rank_of(1, sleeps, 0)}), {JobState::hung, "held", {1}});
}

TEST_CASE("ranks that have launched other collectives are told apart, of two both") {
  auto job = job_of({on_gpu(0, 0, 42, 0), on_gpu(1, 0, 42, 0)});
  RasAnswer answer;
  answer.launched = {{0, {{"AllReduce", 42}}}, {1, {{"AllReduce", 41}, {"AllGather", 1}}}};
  job.ras = {answer};
  check(job, {JobState::hung, "other-call", {0, 1}},
        "0 AllGather of rank 0, 1 AllGather of rank 1");
  job = job_of({on_gpu(0, 0, 42, 0), on_gpu(1, 0, 43, 0), on_gpu(2, 0, 42, 0)});
  answer.launched = {{0, {{"AllReduce", 42}}}, {1, {{"AllReduce", 43}}}, {2, {{"AllReduce", 42}}}};
  job.ras = {answer};
  check(job, {JobState::hung, "other-call", {1}}, "43 AllReduce of rank 1");
}

TEST_CASE("a rank that NCCL's RAS misses and that is over is named without its launcher's word") {
  auto job = job_of({on_gpu(1, 0, 42, 0)});
  job.world = 2;
  job.all_here = false;
  RasAnswer answer;
  answer.missing[0] = {"process 99 on node 10.0.0.1", false, true};
  job.ras = {answer};
  check(job, {JobState::hung, "same-call", {}});
  job.gone = {0};
  check(job, {JobState::hung, "ended", {0}}, "rank 0 is over, and rank 1 stands in cudaStreamSync");
  CHECK(verdict(job).evidence.front() ==
        "NCCL's RAS gets no answer of rank 0: process 99 on node 10.0.0.1");
  // However many an answer names.
  for (int rank = 2; rank < 5000; ++rank) job.ras.front().missing[rank] = {"a", false, true};
  CHECK(verdict(job).evidence.size() < 20);
}

TEST_CASE("of ranks on GPUs who waits least is late, or whose GPU works while the others' wait") {
  auto late = rank_of(1, [](int look) {
    auto one = look % 4 == 3 ? in_call("cudaStreamSynchronize", 1, CallKind::gpu) : sleeps(look);
    one.launched = 40 + static_cast<std::uint64_t>(look);
    return one;
  });
  check(job_of({on_gpu(0, 0, 40, 1), late}), {JobState::slow, "late", {1}}, "it is asleep");
  check(job_of({on_gpu(0, 0.5, 40, 1), on_gpu(1, 0.02, 40, 1)}), {JobState::slow, "late", {0}},
        "its GPU works while the other one waits");
  check(job_of({on_gpu(0, 0.5, 40, 1), on_gpu(1, 0.3, 40, 1)}), {JobState::running, "moving", {}});
  // Far less than the other's, and yet a GPU that works.
  check(job_of({on_gpu(0, 0.5, 40, 1), on_gpu(1, 0.1, 40, 1)}), {JobState::running, "moving", {}});
}

TEST_CASE("bytes that nobody acknowledges are named with the peer") {
  auto job = job_of({rank_of(0, stands), rank_of(1, stands)});
  job.ranks[1].sockets = {{"10.0.0.2:4711", false, 1448, 5}};
  check(job, {JobState::hung, "unreachable", {1}}, "what rank 1 sends to 10.0.0.2:4711");
  // A lossy link on which the job gets on.
  auto lossy = job_of({rank_of(0, moves), rank_of(1, moves)});
  lossy.ranks[1].sockets = job.ranks[1].sockets;
  check(lossy, {JobState::running, "moving", {}});
  CHECK(remarks(lossy).front().id == "retransmits");
}

TEST_CASE("what cannot be seen is said, and what is over soon is no hang") {
  auto job = job_of({rank_of(
      0, [](int) { return RankLook{}; }, 0.9)});
  job.ranks[0].stack_problem = "Operation not permitted";
  check(job, {JobState::unknown, "unseen", {}}, "no stack");
  CHECK(verdict(job).evidence.front() == "Operation not permitted");
  check(job_of({rank_of(0, sleeps, 0), rank_of(1, sleeps, 0)}), {JobState::unknown, "idle", {}});
  const auto pauses = [](int look) {
    auto one = sleeps(look);
    one.launched = 40 + static_cast<std::uint64_t>(look);
    return one;
  };
  check(job_of({rank_of(0, pauses, 0), rank_of(1, pauses, 0)}), {JobState::running, "moving", {}});
  auto early = job_of({rank_of(0, stands), rank_of(1, stands)});
  early.seconds = 1;
  check(early, {JobState::running, "moving", {}});
}

TEST_CASE("causes that need not show yet are remarked, each with a fix") {
  auto job = job_of({rank_of(0, moves), rank_of(1, moves)});
  CHECK(remarks(job).empty());
  const auto only = [&](const std::string& id) {
    const auto found = remarks(job);
    REQUIRE(found.size() == 1);
    CHECK(found.front().id == id);
    CHECK_FALSE(found.front().fix.empty());
  };
  auto& first = job.ranks[0];
  auto& second = job.ranks[1];
  first.libraries = {{"NCCL", "/a/libnccl.so.2", "aa"}, {"NCCL", "/b/libnccl.so.2", "aa"}};
  second.libraries = {{"NCCL", "/a/libnccl.so.2", "aa"}};
  only("two-libraries");
  first.libraries = {{"Open MPI", "/a/libmpi.so.40", ""}, {"MPICH", "/a/libmpich.so.12", ""}};
  second.libraries = {};
  only("two-libraries");
  first.libraries = {{"NCCL", "/a/libnccl.so.2", "aa"}};
  second.libraries = {{"NCCL", "/a/libnccl.so.2", "bb"}};
  only("versions-differ");
  second.libraries = first.libraries;
  second.shm_bytes = std::uint64_t{64} << 20;
  second.shm_free_bytes = second.shm_bytes;
  only("shm-small");
  second.shm_free_bytes = 4096;
  second.nccl_files = 41;
  second.nccl_files_bytes = std::uint64_t{62} << 20;
  only("shm-full");
  CHECK(remarks(job).front().says.ends_with(
      "has 0 MiB free of 64 MiB; 41 files nccl-* hold 62 MiB, and NCCL removes its own once its "
      "ranks have met: dead jobs left them"));
  CHECK(remarks(job).front().fix.starts_with("ls -l /dev/shm: what dead jobs left can be removed"));
  second.nccl_files = 0;
  second.shm_bytes = std::uint64_t{8} << 30;
  only("shm-full");
  second.shm_free_bytes = second.shm_bytes;
  first.user_namespace = "user:[1]";
  second.user_namespace = "user:[2]";
  only("user-namespaces");
  second.user_namespace = first.user_namespace;
  first.ipc_namespace = "ipc:[1]";
  second.ipc_namespace = "ipc:[2]";
  only("memory-apart");
  CHECK(remarks(job).front().fix.find("hostIPC: true") != std::string::npos);
  second.ipc_namespace = first.ipc_namespace;
  job.has_rdma = true;
  first.memlock_bytes = std::numeric_limits<std::uint64_t>::max();
  second.memlock_bytes = std::uint64_t{8} << 20;
  only("memlock");
  job.has_rdma = false;
  first.only_core = second.only_core = "3";
  only("one-core");
  first.only_core = second.only_core = "";
  first.slow_settings = "NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1";
  only("slow-path");
  CHECK(remarks(job).front().says.ends_with("talk through sockets"));
  first.slow_settings = "NCCL_P2P_LEVEL=LOC";
  CHECK(remarks(job).front().says.ends_with("talk through the host's memory"));
  first.slow_settings = "NCCL_SHM_DISABLE=1";
  CHECK(remarks(job).front().fix == "start it without NCCL_SHM_DISABLE=1");
  first.slow_settings = "";
  job.all_here = false;
  job.world = 4;
  CHECK(remarks(job).empty());
  second.rank = first.rank + 2;
  only("dealt-ranks");
}

TEST_CASE("a job whose ranks have all ended while it was looked at does not hang") {
  LiveJob job;
  job.world = 2;
  job.seconds = 8;
  CHECK(verdict(job).state == JobState::unknown);
  CHECK(verdict(job).says == "all ranks found have ended");
}
