// `dynamiccl doctor --job` on ranks that really run: those of a run of our own.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "containers/command.hpp"
#include "containers/processes.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "tests/e2e/program.hpp"

using namespace dynamiccl;

namespace {

/// Ranks of a run in this program's folder, once there are two.
std::vector<pid_t> two_ranks(const Program& program) {
  for (int i = 0; i < 1200; ++i) {
    std::vector<pid_t> found;
    for (const auto& process : list_processes())
      if (!process.argv.empty() &&
          process.argv.front().find("dynamiccl-worker") != std::string::npos &&
          join(process.argv, " ").find(program.folder()) != std::string::npos)
        found.push_back(process.pid);
    if (found.size() == 2) return found;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return {};
}

}  // namespace

TEST_CASE("a job that runs is looked at from outside: it goes on, and then a rank is stopped") {
  if (find_program("eu-stack").empty() && find_program("gdb").empty())
    SKIP("neither eu-stack nor gdb is here to read stacks: apt-get install elfutils");
  const Program program;
  const pid_t run = program.start(
      {"run", program.file("long.toml", one_cell("\"bare-metal\"", "openmpi") +
                                            "[protocol]\niterations = 10000000\n"
                                            "cell_time_cap = \"10min\"\nlaunches = 1\n")});
  const auto ranks = two_ranks(program);
  REQUIRE(ranks.size() == 2);
  const auto look = [&](const std::string& name) {
    return program.run({"doctor", "--job", name, "--json"});
  };
  // Who begins may still be on his way into the first call.
  auto healthy = nlohmann::json::object();
  for (int i = 0; i < 10 && healthy.value("state", "") != "running"; ++i) {
    const auto told = look(std::to_string(run));
    REQUIRE(told.exit_code != 2);
    healthy = nlohmann::json::parse(told.out);
    CHECK(healthy["state"] != "hung");
  }
  CHECK(healthy["processes"].size() == 2);
  CHECK(healthy["world"] == 2);
  CHECK(healthy["processes"][0]["libraries"][0]["name"] == "Open MPI");
  // What it calls, where this kernel and this user may see it.
  for (const auto& call : healthy["processes"][0]["calls"])
    if (call["call"] == "MPI_Allreduce") CHECK(call["bytes"] == 1024);
  // On a busy machine the looks before may have found no call, or none began in that time.
  if (healthy["looks"] > 3)
    CHECK_NOFAIL((healthy["calls_problem"] != "" || !healthy["processes"][0]["calls"].empty()));
  REQUIRE(kill(ranks[1], SIGSTOP) == 0);
  // From one of the ranks the others are found.
  const auto stopped = look(std::to_string(ranks[0]));
  CHECK(stopped.exit_code == 4);
  const auto said = nlohmann::json::parse(stopped.out);
  CHECK(said["state"] == "hung");
  CHECK(said["verdict"] == "stopped");
  CHECK(said["ranks"].size() == 1);
  CHECK(said["next"][0] == "kill -CONT " + std::to_string(ranks[1]));
  // As from another machine, whose second host does not answer.
  const auto shell =
      program.file("into", "#!/bin/sh\n[ $1 = near ] || exit 255\nshift\nexec sh -c \"$*\"\n");
  std::filesystem::permissions(shell, std::filesystem::perms::owner_all);
  const auto there =
      program.run({"doctor", "--json", "--hosts", "near,far", "--remote-shell", shell, "--job",
                   "near:" + std::to_string(ranks[0]), "--job", "far:1"});
  INFO(there.err << there.out);
  CHECK(there.exit_code == 4);
  const auto joined = nlohmann::json::parse(there.out);
  CHECK(joined["verdict"] == "stopped");
  CHECK(joined["processes"].size() == 2);
  CHECK(joined["next"][0] == "kill -CONT " + std::to_string(ranks[1]) + " on near");
  CHECK(joined["evidence"].back() == "far was not looked at: code 255");
  const auto nowhere = program.run(
      {"doctor", "--hosts", "near", "--remote-shell", shell, "--job", "NO_SUCH_VARIABLE=1"});
  CHECK(nowhere.exit_code == 2);
  CHECK(nowhere.err.find("no host has a rank of this job: near has no rank of this job: ") !=
        std::string::npos);
  CHECK(nowhere.err.find("no process that this user may read has this variable") !=
        std::string::npos);
  kill(ranks[1], SIGCONT);
  kill(run, SIGTERM);
  CHECK(Program::wait(run) == 128 + SIGTERM);
}

TEST_CASE("what does not go with a job that is looked at is refused, saying why") {
  const Program program;
  const auto refused = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"doctor", "--job", "1"});
    const auto result = program.run(words);
    CHECK(result.exit_code == 2);
    return result.err;
  };
  const auto says = [](const std::string& text, const char* words) {
    return text.find(words) != std::string::npos;
  };
  CHECK(says(refused({"--hosts", "a,b"}), "a process id is of one host: name it as a:1"));
  CHECK(says(refused({"--slurm", "--nodes", "2"}), "--slurm and --job exclude each other"));
  CHECK(says(refused({"--least"}), "--least does not go with --job"));
  CHECK(says(refused({"--backend", "gloo"}), "--backend does not go with --job"));
  const auto log = program.file("log", "NCCL INFO\n");
  const auto logs = program.run({"doctor", "--job", log, "--hosts", "a,b"});
  CHECK(logs.exit_code == 2);
  CHECK(says(logs.err, "--hosts looks at a job that runs, and --job names files"));
}
