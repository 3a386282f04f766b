// What a launch that failed is told to have failed by.
#include "orchestrator/launch/post_mortem.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

using Interfaces = std::map<unsigned, std::string>;

const Interfaces kBefore{{1, "lo"}, {2, "eth0"}, {7, "veth7"}};
constexpr const char* kUcx =
    "MPIDI_UCX_init_world(285).....: \n"
    "init_worker(71)...............:  ucx function returned with failed status(ucx_init.c 71 "
    "init_worker No such device)\n";

std::string clause(const std::string& said, const Interfaces& after,
                   Backend backend = Backend::mpich) {
  return vanished_interface_clause({backend, said, kBefore, after, "eth0"});
}

/// A launcher that ended so, saying that.
ProcessOutcome launcher_outcome(int exit_code, const std::string& err,
                                const std::string& out = "") {
  ProcessOutcome outcome;
  outcome.results.emplace_back();
  outcome.results[0].exit_code = exit_code;
  outcome.results[0].by_itself = true;
  outcome.results[0].stderr_tail = err;
  outcome.results[0].stdout_tail = out;
  return outcome;
}

}  // namespace

TEST_CASE("why a library does not start is told in its own words") {
  CHECK(library_words_clause("[vm:19583] [[8321,0],0] ORTE_ERROR_LOG: Data unpack\n"
                             "[vm:19589] PML ucx cannot be selected\n") ==
        "Open MPI said: \"PML ucx cannot be selected\"");
  CHECK(library_words_clause(
            "A requested component was not found, or was unable to be opened.  This\nmeans\n\n"
            "Host:      vm\nFramework: btl\nComponent: nosuch\n-----\nIt looks like MPI_INIT\n") ==
        "Open MPI said that component nosuch of framework btl was not found, or was unable to be "
        "opened");
  CHECK(library_words_clause("WARNING: An invalid value was given for btl_tcp_if_include.  This\n"
                             "value will be ignored.\n\n  Local host: vm\n  Value:      eth9\n"
                             "  Message:    Unknown interface name\n-----\n") ==
        "Open MPI said of btl_tcp_if_include = eth9: \"Unknown interface name\"");
  CHECK(library_words_clause("[17.6] [vm:1:0]  ucp_context.c:1276 UCX  ERROR no usable "
                             "transports/devices (asked rc on all devices)\nAbort(4): x\n") ==
        "UCX said: \"no usable transports/devices (asked rc on all devices)\"");
  CHECK_THAT(library_words_clause(
                 "mm_sysv.c:57   UCX  ERROR   shmat(shmid=6) failed: Invalid argument\n"
                 "initial_address_exchange(145).:  ucx function returned with failed status("
                 "ucx_init.c 145 initial_address_exchange Endpoint timeout)\n"),
             ContainsSubstring("PID namespace") && ContainsSubstring("UCX_TLS = \"tcp,self\""));
  CHECK(library_words_clause("").empty());
  CHECK(library_words_clause("PML \n Framework: \n UCX  ERROR").empty());
}

TEST_CASE("the rank that Open MPI says has ended is known by its number") {
  const auto said = launcher_outcome(
      137, "mpirun.openmpi noticed that process rank 1 with PID 0 on node a exited on signal 9\n");
  CHECK(ranks_behind(said, 2) == std::vector{1});
  CHECK(signal_behind_launcher(said) == 9);
  // Of a wrapper, which ends by itself.
  CHECK(ranks_behind(launcher_outcome(137, "  Process name: [[20171,1],1]\n  Exit code:    137\n"),
                     2) == std::vector{1});
  // MPICH's launcher ends the others, and may name one of them.
  const auto mpich = launcher_outcome(
      11, "",
      "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   PID 12 RUNNING AT b\n"
      "=   EXIT CODE: 11\nYOUR APPLICATION TERMINATED WITH THE EXIT STRING: Segmentation fault "
      "(signal 11)\n");
  CHECK(signal_behind_launcher(mpich) == 11);
  CHECK(ranks_behind(mpich, 2).empty());
  for (const char* text :
       {"", "12", "PID 12", "Process name: [[x,1],9]\n", "noticed that process rank 7 with PID 0"})
    CHECK(ranks_behind(launcher_outcome(137, text), 2).empty());
}

TEST_CASE("the rank that Slurm says has ended is known by its number") {
  const auto after = [](const std::string& first) {
    return launcher_outcome(
        143, first +
                 "srun: launch/slurm: _step_signal: Terminating StepId=1.0\n"
                 "slurmstepd-node1: error: *** STEP 1.0 ON node1 CANCELLED AT 2026-11-28 ***\n"
                 "srun: error: node1: tasks 0-1: Terminated\n"
                 "srun: Force Terminated StepId=1.0\n");
  };
  const auto killed = after("srun: error: node2: task 3: Killed\n");
  CHECK(ranks_behind(killed, 4) == std::vector{3});
  CHECK(signal_behind_launcher(killed) == SIGKILL);
  const auto crashed = after("srun: error: a: tasks 0,2-3: Segmentation fault (core dumped)\n");
  CHECK(ranks_behind(crashed, 4) == std::vector{0, 2, 3});
  CHECK(signal_behind_launcher(crashed) == SIGSEGV);
  const auto failed = after("srun: error: node1: task 2: Exited with exit code 7\n");
  CHECK(ranks_behind(failed, 4) == std::vector{2});
  CHECK(signal_behind_launcher(failed) == 0);
  CHECK(exit_code_behind_launcher(failed) == 7);
  // All by TERM: nobody says who was the first. Nor does what is none of Slurm's lines.
  for (const char* text : {"", "srun: error: task\n", "srun: error: a: task x: Killed\n",
                           "srun: error: : \n", "srun: error: a: task 4: Out Of Memory\n"}) {
    INFO(text);
    CHECK(ranks_behind(after(text), 4).empty());
    CHECK(signal_behind_launcher(after(text)) == SIGTERM);
  }
}

TEST_CASE("a rank that a signal ended tells more than those that failed without it") {
  ProcessOutcome outcome;
  outcome.results.resize(4);
  for (auto& rank : outcome.results) {
    rank.is_rank = true;
    rank.by_itself = true;
  }
  auto& ranks = outcome.results;
  ranks[0].exit_code = 1;
  ranks[1].exit_code = 128 + 13;  // it wrote to one that was gone
  ranks[2].signal = 9;
  ranks[3].signal = 15;
  ranks[3].by_itself = false;
  CHECK(ranks_behind(outcome, 4) == std::vector{2});
  CHECK(signal_behind_launcher(outcome) == 9);
  // Two that were killed at once.
  ranks[3] = ranks[2];
  CHECK(ranks_behind(outcome, 4) == std::vector{2, 3});
  // Through a shell or an engine.
  ranks[2].signal = ranks[3].signal = 0;
  ranks[2].exit_code = 137;
  ranks[3].exit_code = 1;
  CHECK(ranks_behind(outcome, 4) == std::vector{2});
  CHECK(signal_behind_launcher(outcome) == 9);
  // Nobody was: the first one, and who ended as it did.
  ranks[2].exit_code = 0;
  CHECK(ranks_behind(outcome, 4) == std::vector{0, 3});
  CHECK(signal_behind_launcher(outcome) == 0);
  ranks[3] = ProcessResult{};
  ranks[3].is_rank = true;
  ranks[3].start_error = "not found";
  CHECK(ranks_behind(outcome, 4) == std::vector{3});
}

TEST_CASE("an interface that went while UCX opened it is told, with those that came and went") {
  const auto told = clause(kUcx, {{1, "lo"}, {2, "eth0"}, {9, "veth9"}});
  CHECK_THAT(told, ContainsSubstring("one was gone when it came to it"));
  CHECK_THAT(told, ContainsSubstring("came or went: veth7, veth9)"));
  CHECK_THAT(told, ContainsSubstring("--resume"));
  CHECK_THAT(told, ContainsSubstring("UCX_NET_DEVICES = \"eth0\" in [knobs.mpich.env]"));
  // It came and went in between: nobody knows its name.
  CHECK_THAT(clause(kUcx, kBefore), ContainsSubstring("came to it: those of containers"));
}

TEST_CASE(
    "interfaces that changed are told of a start that failed without a word, and of no other") {
  // The name is the same, the interface another.
  const Interfaces again{{1, "lo"}, {2, "eth0"}, {9, "veth7"}};
  const auto told = clause(" \n", again);
  CHECK_THAT(told, ContainsSubstring("nobody said why"));
  CHECK_THAT(told, ContainsSubstring("meanwhile (veth7)"));
  CHECK(clause("", kBefore).empty());
  CHECK(clause("", again, Backend::gloo).empty());
  CHECK(clause("cannot open shared object file", again).empty());
  CHECK(clause("cudaGetDevice: No such device", kBefore).empty());
  Interfaces many = kBefore;
  for (unsigned index = 20; index < 29; ++index) many[index] = "veth" + std::to_string(index);
  CHECK_THAT(clause("", many),
             ContainsSubstring("meanwhile (veth20, veth21, veth22, veth23 and more)"));
}
