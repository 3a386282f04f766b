// The readers against real processes.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "containers/command.hpp"
#include "core/vocabulary/error.hpp"
#include "orchestrator/doctor/job/find_ranks.hpp"
#include "orchestrator/doctor/job/look_at_job.hpp"
#include "orchestrator/doctor/job/process_files.hpp"
#include "orchestrator/doctor/job/stacks.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;

namespace {

/// A process group of this program's making, which goes away with the object.
class Started {
 public:
  explicit Started(const std::string& script) : pid_(fork()) {
    if (pid_ == 0) {
      setpgid(0, 0);
      execl("/bin/sh", "sh", "-c", script.c_str(), static_cast<char*>(nullptr));
      _exit(127);
    }
    setpgid(pid_, pid_);
  }
  ~Started() {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

/// Until a condition holds, for a minute at most.
bool comes_true(const std::function<bool()>& condition) {
  for (int i = 0; i < 1200; ++i) {
    if (condition()) return true;
    usleep(50'000);
  }
  return false;
}

std::size_t ranks_below(pid_t pid) { return ranks_among({pid}, all_processes()).ranks.size(); }

const std::string kTwoRanks =
    "RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_PORT=29500 sleep 600 & "
    "RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_PORT=29500 sleep 600 & wait";

/// Whether this user may read the variables of all processes, as root need not either.
bool every_environ_opens() {
  const auto all = all_processes();
  return std::all_of(all.begin(), all.end(), [](const ProcessStat& one) {
    const int file = open(("/proc/" + std::to_string(one.pid) + "/environ").c_str(), O_RDONLY);
    if (file < 0) return one.pid == 1 || (errno != EACCES && errno != EPERM);
    close(file);
    return true;
  });
}

}  // namespace

TEST_CASE("ranks are found below their launcher, and from one of them the others") {
  const Started launcher(kTwoRanks);
  REQUIRE(comes_true([&] { return ranks_below(launcher.pid()) == 2; }));
  const auto job = ranks_among({launcher.pid()}, all_processes());
  CHECK(job.world == 2);
  CHECK(job.all_here);
  CHECK(job.marker == "MASTER_PORT=29500");
  CHECK(job.ranks[0].rank == 0);
  CHECK(job.ranks[1].rank == 1);
  CHECK(ranks_among({job.ranks[1].pid}, all_processes()).ranks.size() == 2);
  CHECK(find_ranks({std::to_string(launcher.pid())}).ranks.size() == 2);
}

TEST_CASE("a wrapper that has the rank's variables too is not the rank") {
  const Started launcher(
      "RANK=0 WORLD_SIZE=2 sh -c 'sleep 600; :' & RANK=1 WORLD_SIZE=2 sleep 600 & wait");
  REQUIRE(comes_true([&] { return tree_of(launcher.pid(), all_processes()).size() == 4; }));
  REQUIRE(comes_true([&] {
    const auto job = ranks_among({launcher.pid()}, all_processes());
    return job.ranks.size() == 2 && job.ranks[0].program == "sleep";
  }));
}

TEST_CASE("a launcher that is a task of Slurm, as mpirun in a batch job, is no rank") {
  const Started launcher(
      "export SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_STEP_ID=0 SLURM_JOB_ID=4194303; "
      "sh -c 'export PMIX_NAMESPACE=77 OMPI_COMM_WORLD_SIZE=2; OMPI_COMM_WORLD_RANK=0 sleep 600 & "
      "OMPI_COMM_WORLD_RANK=1 sleep 600 & wait'; :");
  REQUIRE(comes_true([&] { return ranks_below(launcher.pid()) == 2; }));
  const auto job = find_ranks({"slurm:4194303"});
  REQUIRE(job.ranks.size() == 2);
  CHECK(job.ranks[0].program == "sleep");
  CHECK(job.ranks[1].rank == 1);
  CHECK(job.world == 2);
  CHECK(job.marker == "PMIX_NAMESPACE=77");
}

TEST_CASE("a launcher that a rank has started gives the job no other ranks") {
  const Started launcher(
      "export WORLD_SIZE=2 MASTER_PORT=29500; RANK=0 sh -c 'export PMIX_NAMESPACE=78 "
      "OMPI_COMM_WORLD_SIZE=2; OMPI_COMM_WORLD_RANK=0 sleep 600 & OMPI_COMM_WORLD_RANK=1 sleep 600 "
      "& wait' & RANK=1 sleep 600 & wait");
  REQUIRE(comes_true([&] {
    const auto tree = tree_of(launcher.pid(), all_processes());
    return std::count_if(tree.begin(), tree.end(),
                         [](const auto& one) { return one.name == "sleep"; }) == 3;
  }));
  const auto job = ranks_among({launcher.pid()}, all_processes());
  CHECK(job.marker == "MASTER_PORT=29500");
  REQUIRE(job.ranks.size() == 2);
  CHECK(job.ranks[0].program == "sh");
  CHECK(job.ranks[1].program == "sleep");
}

TEST_CASE("tasks of Slurm are known by their job's number: each job's first step is number 0") {
  const Started launcher(
      "export SLURM_NTASKS=2 SLURM_STEP_ID=0 SLURM_JOB_ID=4194302; SLURM_PROCID=0 sleep 600 & "
      "SLURM_PROCID=1 sleep 600 & wait");
  REQUIRE(comes_true([&] { return ranks_below(launcher.pid()) == 2; }));
  CHECK(ranks_among({launcher.pid()}, all_processes()).marker == "SLURM_JOB_ID=4194302");
}

TEST_CASE("a rank that is over and not collected is told of with its signal") {
  // The shell does not wait before its sleep ends.
  const Started launcher(
      "RANK=0 WORLD_SIZE=2 sleep 600 & RANK=1 WORLD_SIZE=2 sleep 500 & kill -9 $!; exec sleep 600");
  REQUIRE(comes_true([&] {
    const auto job = ranks_among({launcher.pid()}, all_processes());
    return job.ranks.size() == 1 && job.ended.size() == 1;
  }));
  const auto job = ranks_among({launcher.pid()}, all_processes());
  CHECK(job.ranks[0].rank == 0);
  CHECK(job.ended[0].signal == SIGKILL);
}

TEST_CASE("what a rank that lives has started and not collected is no rank that is over") {
  const Started launcher("RANK=0 WORLD_SIZE=2 sh -c 'true & exec sleep 600' & exec sleep 500");
  const auto zombies = [&] {
    const auto all = all_processes();
    const auto tree = tree_of(launcher.pid(), all);
    return std::count_if(tree.begin(), tree.end(),
                         [](const auto& one) { return one.state == 'Z'; });
  };
  REQUIRE(comes_true([&] { return ranks_below(launcher.pid()) == 1 && zombies() == 1; }));
  CHECK(ranks_among({launcher.pid()}, all_processes()).ended.empty());
}

TEST_CASE("what a process waits for is read without stopping it") {
  const Started sleeper("exec sleep 600");
  REQUIRE(comes_true([&] {
    const auto look = look_at_process(sleeper.pid(), all_processes());
    return look.state == 'S' && look.kernel_call == "asleep";
  }));
  int ends[2];
  REQUIRE(pipe2(ends, 0) == 0);
  const Started reader("exec cat <&" + std::to_string(ends[0]));
  CHECK(comes_true([&] {
    return look_at_process(reader.pid(), all_processes())
        .kernel_call.starts_with("in a read of pipe:");
  }));
  close(ends[0]);
  close(ends[1]);
  const Started busy("while :; do :; done");
  CHECK(comes_true([&] { return look_at_process(busy.pid(), all_processes()).cpu_s > 0.05; }));
  kill(busy.pid(), SIGSTOP);
  CHECK(comes_true([&] { return look_at_process(busy.pid(), all_processes()).state == 'T'; }));
}

TEST_CASE("surroundings of a process are read: /dev/shm, limits, its user namespace, its core") {
  const Started sleeper("ulimit -l 64; exec taskset -c 0 sleep 600");
  LiveRank rank;
  rank.pid = sleeper.pid();
  REQUIRE(comes_true([&] {
    rank = LiveRank{};
    rank.pid = sleeper.pid();
    read_surroundings(rank);
    return rank.only_core == "0";
  }));
  CHECK(rank.user_namespace.starts_with("user:["));
  CHECK(rank.identity == process_identity(sleeper.pid()));
  CHECK(rank.identity != process_identity(getpid()));
  CHECK(rank.ipc_namespace.starts_with("ipc:["));
  CHECK(rank.shm_bytes > 0);
  CHECK(rank.memlock_bytes == 65536);
  // What a job that died has left there.
  const std::string left = "/dev/shm/nccl-" + std::to_string(rank.pid);
  std::ofstream(left) << std::string(5000, 'x');
  LiveRank later;
  later.pid = rank.pid;
  read_surroundings(later);
  std::filesystem::remove(left);
  CHECK(later.nccl_files > rank.nccl_files);
  CHECK(later.nccl_files_bytes >= rank.nccl_files_bytes + 5000);
  CHECK(rank.libraries.empty());
  CHECK(stuck_sockets(rank.pid).empty());
}

TEST_CASE("a stack is read of a process that sleeps, and it sleeps on") {
  const StackReader stacks;
  if (!stacks.problem().empty()) SKIP(stacks.problem());
  const Started sleeper("exec sleep 600");
  std::string why;
  StackLook look;
  REQUIRE(comes_true([&] {
    look = stacks.look(sleeper.pid(), false, why);
    return look.read && look.place.find("sleep") != std::string::npos;
  }));
  CHECK(look.kind == CallKind::outside);
  CHECK(comes_true([&] { return look_at_process(sleeper.pid(), all_processes()).state == 'S'; }));
  CHECK_FALSE(stacks.look(1 << 22, false, why).read);
  CHECK_FALSE(why.empty());
}

TEST_CASE("who reads a stack too slowly is ended, and its process goes on") {
  // In eu-stack's place, ended just where that has stopped the process.
  const testing::ScratchFolder folder;
  const std::string slow = folder.file("eu-stack");
  std::ofstream(slow) << "#!/bin/sh\nfor pid; do :; done; kill -STOP $pid; sleep 60\n";
  std::filesystem::permissions(slow, std::filesystem::perms::owner_all);
  const std::string path = std::getenv("PATH");
  setenv("PATH", (slow.substr(0, slow.rfind('/')) + ":" + path).c_str(), 1);
  const StackReader stacks;
  setenv("PATH", path.c_str(), 1);
  const Started sleeper("exec sleep 600");
  std::string why;
  CHECK_FALSE(stacks.look(sleeper.pid(), false, why).read);
  CHECK(why.find("in time") != std::string::npos);
  CHECK(comes_true([&] { return look_at_process(sleeper.pid(), all_processes()).state == 'S'; }));
}

TEST_CASE("a job is looked at as a whole: a stopped rank in seconds, and nothing is left stopped") {
  const Started launcher(kTwoRanks);
  REQUIRE(comes_true([&] { return ranks_below(launcher.pid()) == 2; }));
  const auto job = ranks_among({launcher.pid()}, all_processes());
  REQUIRE(kill(job.ranks[1].pid, SIGSTOP) == 0);
  const auto look = look_at_job({std::to_string(launcher.pid())});
  CHECK(look.verdict.id == "stopped");
  CHECK(look.verdict.ranks == std::vector<int>{1});
  CHECK(to_text(look).find("hung (stopped): rank 1 is stopped") == 0);
  CHECK(to_json(look)["verdict"] == "stopped");
  CHECK(to_json(look)["processes"].size() == 2);
  CHECK(look_at_process(job.ranks[0].pid, all_processes()).state == 'S');
  CHECK(look_at_process(job.ranks[1].pid, all_processes()).state == 'T');
}

TEST_CASE("what is no job is refused with what to name instead") {
  const auto refusal = [](const std::string& name) {
    try {
      static_cast<void>(find_ranks({name}));
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::input);
      return std::string(error.what());
    }
    return std::string("found");
  };
  const Started sleeper("exec sleep 600");
  CHECK(refusal(std::to_string(sleeper.pid())).find("no process there has a rank's variable") !=
        std::string::npos);
  CHECK(refusal("4194303").find("no process here has this number") != std::string::npos);
  CHECK(refusal("slurm:4194303").find("job of Slurm") != std::string::npos);
  CHECK(refusal("no-such-container").find("no running container") != std::string::npos);
  CHECK(refusal("no-such-container").ends_with("slurm:JOB, or VARIABLE=VALUE of the ranks"));
  const Started over("RANK=0 WORLD_SIZE=2 true & exec sleep 600");
  CHECK(comes_true([&] {
    return refusal(std::to_string(over.pid())).find("no rank runs there any more") !=
           std::string::npos;
  }));
}

TEST_CASE("of several hosts one without ranks is an empty look that says why") {
  LookOptions options;
  options.of_several = true;
  const auto look = look_at_job({"NO_SUCH_VARIABLE=1"}, options);
  CHECK(look.job.ranks.empty());
  CHECK(look.verdict.state == JobState::unknown);
  CHECK(look.verdict.says.find("no process that this user may read") != std::string::npos);
  // A name of another host's takes nothing from what is here.
  const Started launcher("RANK=0 WORLD_SIZE=2 sleep 600 & RANK=1 WORLD_SIZE=2 sleep 600 & wait");
  const auto pid = std::to_string(launcher.pid());
  REQUIRE(comes_true([&] { return ranks_below(launcher.pid()) == 2; }));
  for (const auto& named : {std::vector<std::string>{pid, "NO_SUCH_VARIABLE=1"},
                            std::vector<std::string>{"NO_SUCH_VARIABLE=1", pid}})
    CHECK(find_ranks(named, true).ranks.size() == 2);
  CHECK_THROWS_AS(find_ranks({pid, "NO_SUCH_VARIABLE=1"}), NoRankHere);
}

TEST_CASE("that a host has no rank is sure only where nothing may hide one") {
  const auto is_sure = [](const std::vector<std::string>& named) {
    try {
      static_cast<void>(find_ranks(named, true));
    } catch (const NoRankHere& none) {
      return none.sure;
    }
    return false;
  };
  // A name may be a mistake, or of a container whose engine is not asked.
  CHECK_FALSE(is_sure({"no-such-container"}));
  CHECK_FALSE(is_sure({"4194303"}));
  const Started sleeper("exec sleep 600");
  CHECK_FALSE(is_sure({std::to_string(sleeper.pid())}));
  const Started over("RANK=0 WORLD_SIZE=2 true & exec sleep 600");
  const auto pid = std::to_string(over.pid());
  REQUIRE(comes_true([&] { return is_sure({pid}); }));
  CHECK_FALSE(is_sure({"no-such-container", pid}));
  if (geteuid() != 0 || !every_environ_opens()) SKIP("variables of some processes are hidden");
  CHECK(is_sure({"NO_SUCH_VARIABLE=1"}));
  CHECK(is_sure({"slurm:4194303", "NO_SUCH_VARIABLE=1"}));
  // As somebody who may not.
  const pid_t other = fork();
  if (other == 0) {
    if (setresuid(65534, 65534, 65534) != 0) _exit(2);
    try {
      static_cast<void>(find_ranks({"NO_SUCH_VARIABLE=1"}, true));
    } catch (const NoRankHere& none) {
      _exit(none.sure ? 1 : 0);
    } catch (...) {
      _exit(3);
    }
    _exit(4);
  }
  int status = -1;
  waitpid(other, &status, 0);
  CHECK(status == 0);
}
