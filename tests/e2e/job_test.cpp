// `dynamiccl tune -- COMMAND` with a job that loads the real plugin as NCCL would and moves its
// bytes through real sockets (socket_job_main.cpp): only the GPUs are missing.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "containers/command.hpp"
#include "core/statistics/statistics.hpp"
#include "profiles/detect/probes/meeting_folder.hpp"
#include "tests/e2e/own_job.hpp"
#include "tuner/table/table.hpp"

using namespace dynamiccl;
namespace fs = std::filesystem;

namespace {

/// The job with a leader beside it, both until they end by themselves; the leader says into
/// leader.txt, and shares the folder "shared" with the job. @returns 0 when both are well
int beside_leader(const Program& program, int steps, const std::string& options) {
  const std::string folder = program.folder() + "/shared";
  fs::create_directories(folder);
  const std::string plugin = DYNAMICCL_BINARY_DIR "/libdynamiccl-nccl-plugin.so";
  const std::string job = "NCCL_TUNER_PLUGIN=" + plugin + " NCCL_PROFILER_PLUGIN=" + plugin +
                          " DYNAMICCL_TUNER_FOLDER=" + folder + " " + kJob + " --steps " +
                          std::to_string(steps);
  const std::string leader = DYNAMICCL_BINARY_DIR "/dynamiccl-leader " + folder + " " + options +
                             " 2>" + program.folder() + "/leader.txt";
  return std::system(
      ("(" + job + ") & job=$!; " + leader + " && wait $job; code=$?; wait; exit $code").c_str());
}

/// A job that launch settings make some seven times as fast, whatever else the machine does.
/// @param lines of sh before the job is started, with $launch, counted from 1, and $pace to change
std::string paced_job(const Program& program, const std::string& lines) {
  const std::string job = program.file(
      "job.sh", "#!/bin/sh\ncd '" + program.folder() + "' && echo >> started && pace=3e6\n" +
                    "launch=$(wc -l < started)\n"
                    "grep -qE 'NTHREADS|MIN_CTAS' \"$NCCL_CONF_FILE\" && pace=12e6\n" +
                    lines + "exec " + kJob + " --pace $pace\n");
  fs::permissions(job, fs::perms::owner_all);
  return job;
}

}  // namespace

// The order has a say: CTest runs quarters of these cases beside each other (CMakeLists.txt).
TEST_CASE("a job's own command is tuned: FASTER settings, the line that starts it, every choice",
          "[C-15][C-39][E-64][E-102][E-109][E-133]") {
  const OverSockets sockets;
  const Program program;
  const std::string out = program.folder() + "/what is tuned";
  const auto tuned = program.run({"tune", "--out", out, "--launches", "8", "--pairs", "3",
                                  "--learn-seconds", "2", "--call-agent", "ppo", "--", kJob});
  INFO(tuned.err << tuned.out);
  REQUIRE(tuned.exit_code == 0);
  CHECK(says(tuned.err, "will be started up to 8 times to search"));
  CHECK(says(tuned.err, "3 calls a step"));
  REQUIRE(says(tuned.out, "FASTER"));
  CHECK(says(tuned.out, "NCCL_CONF_FILE='" + fs::canonical(out).string() + "/nccl.conf' " + kJob));
  CHECK(says(text_of(out + "/nccl.conf"), "NCCL_SOCKET_NTHREADS="));
  CHECK(nlohmann::json::parse(text_of(out + "/table.json")).at("epoch") == 1);
  CHECK(nothing_left(program));

  // Both agents acted, each under its name.
  CHECK(program.value("SELECT count(*) FROM tuning WHERE mode = 'job' AND agent = 'bandit'") == 1);
  CHECK(program.value("SELECT count(*) FROM tuning WHERE mode = 'job' AND agent = 'ppo' AND "
                      "policy_version IS NOT NULL") == 1);
  CHECK(program
            .value("SELECT count(*) FROM decision WHERE task_key LIKE 'nccl/ring/allreduce/%' AND "
                   "reward IS NOT NULL AND regime <> ''")
            .get<int>() > 0);
  CHECK(program.value("SELECT count(*) FROM decision WHERE kind = 'final' AND guard = 'pass' AND "
                      "task_key LIKE 'nccl/job/step/%'") == 1);
  // Faster: nothing speaks against the choice, and it is said of how many settings.
  CHECK(
      program.value("SELECT candidates_json->'$.flags' = '[]' AND candidates_json->>'$.tried' > 1 "
                    "FROM decision WHERE kind = 'final' AND task_key LIKE 'nccl/job/step/%'") == 1);
  CHECK(program.value(
            "SELECT count(*) FROM decision WHERE task_key LIKE 'nccl/job/step/%' AND "
            "(id = (SELECT min(id) FROM decision WHERE task_key LIKE 'nccl/job/step/%')) IS "
            "NOT (state_json->'$.last_choice' IS NULL)") == 0);
  CHECK(
      program
          .value("SELECT count(*) FROM decision WHERE environment LIKE 'job with socket_threads=%' "
                 "AND task_key NOT LIKE 'nccl/job/step/%'")
          .get<int>() > 0);
  for (const char* query : {"decisions", "trace", "regret"}) {
    const auto answer = program.run({"query", query});
    CHECK(answer.exit_code == 0);
    CHECK(says(answer.out, "job"));
  }

  // The job runs with what was found, and what was found is compared with the default again.
  setenv("NCCL_CONF_FILE", (out + "/nccl.conf").c_str(), 1);
  CHECK(std::system((kJob + " --steps 5").c_str()) == 0);
  unsetenv("NCCL_CONF_FILE");
  const auto again = program.run({"tune", "--recheck", "--out", out, "--pairs", "4", "--", kJob});
  INFO(again.err << again.out);
  CHECK(again.exit_code == 0);
  CHECK(says(again.out, "still hold"));
  CHECK(says(again.err, "driver unknown"));
  CHECK(says(again.err, "will be started 8 times (16 at most)"));
  CHECK(nothing_left(program));

  // A file without settings holds nothing that could be checked, whatever was learnt per call.
  std::ofstream(out + "/nccl.conf") << "garbage\n";
  const auto damaged = program.run({"tune", "--recheck", "--out", out, "--", kJob});
  CHECK(damaged.exit_code == 2);
  CHECK(says(damaged.err, "no settings of a search"));
}

TEST_CASE("layers that repeat within a step are not taken for the step", "[E-105]") {
  const OverSockets sockets;
  const Program program;
  // Fewer steps than a layer has made when four steps have gone by.
  const auto tuned = program.run(
      {"tune", "--agent", "default", "--out", program.folder() + "/tuned", "--launches", "2",
       "--pairs", "2", "--steps", "50", "--call-agent", "none", "--", kJob, "--loop", "layers"});
  INFO(tuned.err << tuned.out);
  REQUIRE(tuned.exit_code == 0);
  CHECK(says(tuned.err, "25 calls a step"));
  // Two pairs have no interval.
  CHECK(says(tuned.err, "and 6 times to confirm (20 at most)"));
  CHECK_FALSE(says(tuned.err, "FAILED"));
}

TEST_CASE("mpirun between the tuner and the ranks passes on what they need", "[E-102]") {
  const OverSockets sockets;
  const Program program;
  const std::string launcher = GENERATE(as<std::string>{}, "mpirun.openmpi", "mpirun.mpich");
  if (std::system(("command -v " + launcher + " >/dev/null").c_str()) != 0)
    SKIP(launcher << " is missing: apt-get install openmpi-bin mpich");
  const auto tuned =
      program.run({"tune", "--out", program.folder() + "/tuned", "--launches", "2", "--pairs", "2",
                   "--call-agent", "none", "--", launcher, "-n", "1", kJob});
  INFO(tuned.err << tuned.out);
  REQUIRE(tuned.exit_code == 0);
  CHECK(says(tuned.err, "3 calls a step"));
  CHECK(program.value("SELECT count(*) FROM tuning WHERE mode = 'job' AND agent = 'bandit'") == 1);
  CHECK(nothing_left(program));
}

TEST_CASE("a launch whose steps are others than the first one's does not count", "[E-105]") {
  const OverSockets sockets;
  const Program program;
  const std::string first = program.folder() + "/first";
  const std::string script =
      "mkdir " + first + " 2>/dev/null && exec " + kJob + "; exec " + kJob + " --loop layers";
  const auto tuned =
      program.run({"tune", "--out", program.folder() + "/tuned", "--launches", "2",
                   "--trial-seconds", "8", "--call-agent", "none", "--", "/bin/sh", "-c", script});
  INFO(tuned.err << tuned.out);
  CHECK(says(tuned.err, "3 calls a step"));
  CHECK(says(tuned.err, "its calls repeat a sequence of 25, that of the first launch had 3"));
  CHECK(nothing_left(program));
}

TEST_CASE("a job over two hosts gets launch settings, and is told why its calls keep NCCL's own",
          "[E-102][E-117]") {
  const OverSockets sockets;
  const Program program;
  fs::create_directories(program.folder() + "/other-host");
  const std::vector<std::string> job{kJob, "--apart", program.folder() + "/other-host"};
  std::vector<std::string> tune{
      "tune",       "--agent", "default", "--out", program.folder() + "/tuned",
      "--launches", "2",       "--steps", "8",     "--"};
  tune.insert(tune.end(), job.begin(), job.end());
  const auto tuned = program.run(tune);
  INFO(tuned.err << tuned.out);
  REQUIRE(tuned.exit_code == 0);
  CHECK(says(tuned.err, "1 of the 2 ranks of communicator "));
  CHECK(says(tuned.err, "launch settings hold for all of its hosts"));
  CHECK(program.value("SELECT count(*) FROM decision WHERE task_key LIKE 'nccl/job/step/%'") > 0);
  CHECK(program.value("SELECT count(*) FROM decision WHERE task_key NOT LIKE 'nccl/job/step/%'") ==
        0);
  std::vector<std::string> online{"tune", "--online", "--out", program.folder() + "/tuned", "--"};
  online.insert(online.end(), job.begin(), job.end());
  online.insert(online.end(), {"--steps", "30"});
  const auto accompanied = program.run(online);
  INFO(accompanied.err);
  CHECK(accompanied.exit_code == 5);
  CHECK(says(accompanied.err, "1 of the 2 ranks of communicator "));
  CHECK(says(accompanied.err, "nothing was learnt"));
  CHECK(nothing_left(program));
}

TEST_CASE("ranks of one machine that stay apart are tried as one host", "[C-39][E-102]") {
  if (geteuid() != 0) SKIP("namespaces need root");
  const Program program;
  const std::string out = program.folder() + "/tuned";
  // Their /dev/shm is one already: a name suffices.
  const auto tuned =
      program.run({"tune", "--out", out, "--launches", "3", "--pairs", "2", "--call-agent", "none",
                   "--steps", "8", "--", kJob, "--pace", "4e6", "--hosts", "names"});
  INFO(tuned.err << tuned.out);
  REQUIRE(tuned.exit_code == 0);
  REQUIRE(says(tuned.out, "FASTER: one_host=one-host"));
  CHECK(says(text_of(out + "/nccl.conf"), "NCCL_HOSTID=one-host\nNCCL_NVLS_ENABLE=0\n"));
  CHECK(nothing_left(program));
}

TEST_CASE("ranks that share a folder alone are tried as one host by the library", "[C-39][E-102]") {
  if (geteuid() != 0) SKIP("namespaces need root");
  const Program program;
  const std::string out = program.folder() + "/tuned";
  const std::string memory = "/dev/shm/one-host-" + std::to_string(getpid());
  std::vector<std::string> tune{"tune", "--out",        out,    "--launches", "3",  "--pairs",
                                "2",    "--call-agent", "none", "--steps",    "8",  "--",
                                kJob,   "--pace",       "4e6",  "--hosts",    "all"};
  fs::create_directory(memory);
  setenv("DYNAMICCL_SHARED_FOLDER", memory.c_str(), 1);
  const auto tuned = program.run(tune);
  unsetenv("DYNAMICCL_SHARED_FOLDER");
  fs::remove_all(memory);
  INFO(tuned.err << tuned.out);
  REQUIRE(tuned.exit_code == 0);
  REQUIRE(says(tuned.out, "FASTER: one_host=one-host"));
  const std::string library = DYNAMICCL_BINARY_DIR "/libdynamiccl-onehost.so";
  CHECK(says(tuned.out, "/nccl.conf LD_PRELOAD="));
  CHECK(says(text_of(out + "/nccl.conf"), "DYNAMICCL_SHARED_FOLDER=" + memory + "\n"));
  CHECK(says(text_of(out + "/nccl.conf"), "every rank: LD_PRELOAD=" + library + "\n"));
  CHECK(nothing_left(program));
  // On a disk it may be another machine's, too.
  if (look_at_meeting_folder(program.folder()).filesystem == "tmpfs") return;
  tune.insert(tune.begin() + 1, {"--agent", "default"});
  const auto on_disk = program.run(tune);
  INFO(on_disk.err);
  CHECK(says(on_disk.err, "one host could not be tried (docs/one-host.md): "));
  CHECK(says(on_disk.err, "not in a tmpfs"));
  CHECK(nothing_left(program));
}

TEST_CASE("settings per call are learnt where the launch settings stay the default",
          "[E-102][E-105]") {
  const OverSockets sockets;
  const Program program;
  const auto tuned =
      program.run({"tune", "--agent", "default", "--out", program.folder() + "/tuned", "--launches",
                   "4", "--pairs", "2", "--learn-seconds", "5", "--", kJob});
  INFO(tuned.err << tuned.out);
  REQUIRE(tuned.exit_code == 0);
  CHECK(says(tuned.err, "2 launches to search"));
  CHECK(program.value("SELECT count(*) FROM decision WHERE task_key NOT LIKE '%/job/step/%'") > 0);
}

TEST_CASE("settings that a job has from elsewhere are no part of a search, and are told",
          "[E-105]") {
  const OverSockets sockets;
  const Program program;
  const std::string out = program.folder() + "/tuned";
  const auto tune = [&](std::vector<std::string> more = {}) {
    std::vector<std::string> words{"tune",    "--out", out,       "--call-agent", "none",
                                   "--steps", "6",     "--agent", "default"};
    more.insert(more.end(), {"--", kJob});
    words.insert(words.end(), more.begin(), more.end());
    return program.run(words);
  };
  // What the environment says outranks what the launches are given.
  setenv("NCCL_PROFILER_PLUGIN", "/elsewhere/libother.so", 1);
  setenv("DYNAMICCL_TUNER_FOLDER", "/elsewhere", 1);
  const auto refused = tune();
  unsetenv("NCCL_PROFILER_PLUGIN");
  unsetenv("DYNAMICCL_TUNER_FOLDER");
  CHECK(refused.exit_code == 2);
  CHECK(says(refused.err, "NCCL_PROFILER_PLUGIN, DYNAMICCL_TUNER_FOLDER are set here"));
  CHECK(says(refused.err, "env -u NCCL_PROFILER_PLUGIN -u DYNAMICCL_TUNER_FOLDER"));

  // Of an earlier search's file only what the user had set himself stays.
  const std::string conf = program.file(
      "earlier.conf",
      "# Written by dynamiccl; the first value of a name counts.\nNCCL_SOCKET_NTHREADS=4\n"
      "# What NCCL would have read without it:\nNCCL_TUNER_PLUGIN=/elsewhere/libother.so\n"
      "NCCL_MIN_CTAS=3\n");
  setenv("NCCL_CONF_FILE", conf.c_str(), 1);
  const auto again = tune();
  unsetenv("NCCL_CONF_FILE");
  INFO(again.err);
  CHECK(again.exit_code == 0);
  CHECK(says(again.err, conf + " was written by an earlier `tune`"));
  CHECK(says(again.err, "NCCL_TUNER_PLUGIN=/elsewhere/libother.so of " + conf + " is not loaded"));
  CHECK(says(again.err, "NCCL_MIN_CTAS is set by you"));
  CHECK_FALSE(says(again.err, "NCCL_SOCKET_NTHREADS is set by you"));
  CHECK(says(text_of(out + "/launches/nccl.conf"), "NCCL_MIN_CTAS=3"));
  CHECK_FALSE(says(text_of(out + "/launches/nccl.conf"), "NCCL_SOCKET_NTHREADS=4"));

  // A job that is accompanied keeps them.
  setenv("NCCL_CONF_FILE", conf.c_str(), 1);
  CHECK(program
            .run({"tune", "--online", "--out", out, "--call-agent", "none", "--", kJob, "--steps",
                  "3"})
            .exit_code == 0);
  unsetenv("NCCL_CONF_FILE");
  CHECK(says(text_of(out + "/launches/nccl.conf"), "NCCL_SOCKET_NTHREADS=4"));

  // Two searches would read each other's settings.
  const int before = program.rows("SELECT count(*) AS runs FROM run")[0]["runs"].get<int>();
  const pid_t first = program.start({"tune", "--out", out, "--", kJob});
  REQUIRE(program.wait_until("SELECT count(*) FROM run", before + 1));
  const auto second = tune();
  CHECK(second.exit_code == 2);
  CHECK(says(second.err, "is running with this folder"));
  kill(first, SIGINT);
  CHECK(Program::wait(first) == 130);
  CHECK(nothing_left(program));
}

TEST_CASE("what cannot be tuned is refused with the reason, and no process is left", "[E-105]") {
  const Program program;
  const std::string out = program.folder() + "/tuned";
  const auto tune = [&](std::vector<std::string> command, const std::string& seconds = "2") {
    std::vector<std::string> words{"tune", "--out", out, "--trial-seconds", seconds, "--"};
    words.insert(words.end(), command.begin(), command.end());
    auto result = program.run(words);
    CHECK(result.exit_code == 2);
    CHECK(nothing_left(program));
    return result.err;
  };
  const auto unheard = program.run({"tune", "--online", "--out", out, "--", "/bin/true"});
  CHECK(unheard.exit_code == 5);
  CHECK(says(unheard.err, "no rank of it loaded the plugin, so nothing was learnt"));
  CHECK(says(unheard.err, "the leader took 0."));
  // A try that came to nothing, which `last` passes over.
  const char* const how = "SELECT status FROM run ORDER BY id DESC LIMIT 1";
  CHECK(program.value(how) == "failed");
  CHECK(program.run({"tune", "--online", "--out", out, "--", "/bin/false"}).exit_code == 1);
  CHECK(program.value(how) == "failed");
  const auto told = program.run({"tune", "--online", "--json", "--out", out, "--", "/bin/true"});
  CHECK(nlohmann::json::parse(told.out).at("command_exit_code") == 0);
  CHECK(nlohmann::json::parse(told.out).at("learnt") == false);
  CHECK(says(program.run({"tune", "--max-cores", "0", "--", "true"}).err, "Value 0 is too small"));
  const std::string none = tune({"/bin/sleep", "100"});
  CHECK(says(none, "no rank of it loaded the plugin"));
  CHECK(says(none, "no rank was seen that had such a library loaded"));
  // What fails without us gets no advice on NCCL.
  const std::string broken = tune({"/bin/sh", "-c", "echo broken >&2; echo ------ >&2; exit 3"});
  CHECK(says(broken, "failed by itself (exit code 3, after "));
  CHECK(says(broken, "its last line on stderr: broken"));
  CHECK_FALSE(says(broken, "NCCL 2.23"));
  CHECK(says(tune({"there-is-no-such-program"}), "not found in PATH"));
  CHECK(says(tune({"/etc/passwd"}), "could not be started: /etc/passwd: Permission denied"));
  CHECK(says(tune({kJob, "--loop", "random"}, "6"), "no step could be found"));
  CHECK(says(tune({kJob, "--loop", "graph"}, "30"), "CUDA graphs"));
  CHECK(says(program.run({"tune", "--"}).err, "no command stands behind"));
  CHECK(says(program.run({"tune"}).err, "needs an experiment file, or a command"));
  CHECK(says(program.run({"tune", "x.toml", "--", "true"}).err, "not both"));
  // A container's ranks get no variables of ours: the flags are named.
  const std::string engine = program.folder() + "/docker";
  fs::create_symlink("/bin/false", engine);
  CHECK(says(tune({engine, "run", "image"}), "--env NCCL_CONF_FILE="));
  CHECK_FALSE(fs::exists(out + "/nccl.conf"));
  // Seven that were refused, and three that were accompanied and learnt nothing.
  CHECK(program.value("SELECT count(*) FROM run WHERE status = 'failed'") == 10);
}

TEST_CASE("one run is accompanied to its end, and its step is the job's own",
          "[E-105][E-123][E-174]") {
  const OverSockets sockets;
  const Program program;
  const std::string clock = program.folder() + "/clock.txt";
  const auto online = program.run({"tune", "--online", "--out", program.folder() + "/tuned",
                                   "--call-agent", "bandit", "--parallelism", "tp", "--", kJob,
                                   "--steps", "120", "--own-clock", clock});
  INFO(online.err << online.out);
  REQUIRE(online.exit_code == 0);
  CHECK(says(online.err, "the leader took "));
  CHECK_FALSE(says(online.err, "the leader took -"));
  CHECK(says(online.err, "which every rank would have made without it"));
  CHECK(program
            .value("SELECT count(*) FROM decision d JOIN tuning t ON t.id = d.tuning_id "
                   "WHERE t.agent = 'bandit' AND d.state_json->>'$.parallelism[2]' = 1")
            .get<int>() > 0);
  CHECK(nothing_left(program));

  // Nobody learns: the rhythm and the job's own clock see the same steps.
  const auto alone =
      program.run({"tune", "--online", "--out", program.folder() + "/alone", "--call-agent",
                   "default", "--", kJob, "--steps", "120", "--own-clock", clock});
  INFO(alone.err);
  REQUIRE(alone.exit_code == 0);
  CHECK(says(alone.err, ", 0 settings tried"));
  std::ifstream own(clock);
  std::vector<double> times;
  for (double us = 0; own >> us;) times.push_back(us);
  REQUIRE(times.size() == 120);
  // Steps begin elsewhere for who hears calls: where a busy machine scatters them, two medians may
  // be as far apart as steps are.
  std::sort(times.begin(), times.end());
  const double heard_us = std::stod(alone.out) * 1e3;
  INFO("heard " << heard_us << " us, own clock " << times[30] << " " << median(times) << " "
                << times[90] << " us");
  CHECK(heard_us > std::min(times[30], 0.98 * median(times)));
  CHECK(heard_us < std::max(times[90], 1.02 * median(times)));
}

TEST_CASE("Gloo's time of a size in the job's place is a floor for it", "[E-141][E-142][E-143]") {
  const OverSockets sockets;
  const Program program;
  const std::string file = program.folder() + "/gloo.toml";
  std::ofstream(file) << R"(name = "gloo"
[axes]
environment = "bare-metal"
backend = "gloo"
architecture = "ring"
ranks = 2
[[work]]
collective = "allreduce"
size = ["16KiB", "384KiB", "512KiB"]
[protocol]
warmup = 1
iterations = 3
launches = 1
[tune]
confirm_launches = 3
)";
  const std::string out = program.folder() + "/tuned";
  const auto tune = [&](std::vector<std::string> more) {
    std::vector<std::string> words{"tune",    "--out", out,       "--call-agent", "none",
                                   "--steps", "6",     "--agent", "default"};
    more.insert(more.end(), {"--", kJob});
    words.insert(words.end(), more.begin(), more.end());
    return program.run(words);
  };
  CHECK_FALSE(says(tune({}).err, "Gloo"));
  // A table tells of Gloo's default, and the database then has it, too.
  const std::string table = program.folder() + "/gloo.json";
  REQUIRE(program.run({"tune", file, "--table", table, "--agent", "default"}).exit_code == 0);
  const auto known = tune({});
  INFO(known.err);
  CHECK(known.exit_code == 0);
  CHECK(says(known.err, "Gloo's time is known here for 3 of "));
  CHECK(says(known.err, "allreduce of 512 KiB is slower than Gloo by NCCL's default: "));
  // Not every table is of Gloo.
  const std::string none = program.folder() + "/none.json";
  write_table({}, none);
  const auto refused = tune({"--gloo-floor", none});
  CHECK(refused.exit_code == 2);
  CHECK(says(refused.err, "no row of it says what Gloo took"));
  fs::remove(program.db());
  CHECK(says(tune({"--gloo-floor", table}).err, "Gloo's time is known here for 3 of "));

  CHECK(beside_leader(program, 40, "--agent default --gloo-floor " + table) == 0);
  CHECK(says(text_of(program.folder() + "/leader.txt"), "Gloo's time is known here for 3 sizes"));
  CHECK(nothing_left(program));
}

TEST_CASE("a leader beside a job writes its choices, and import stores them once",
          "[E-102][E-113][E-124][E-174]") {
  const OverSockets sockets;
  const Program program;
  const int code = beside_leader(program, 60, "--agent bandit --calls 5 --parallelism 3d");
  INFO(text_of(program.folder() + "/leader.txt"));
  REQUIRE(code == 0);
  CHECK(nothing_left(program));
  const std::string file = program.folder() + "/shared/decisions.jsonl";
  for (const char* outcome : {"imported", "already there"}) {
    const auto imported = program.run({"import", file});
    INFO(imported.err << imported.out);
    CHECK(imported.exit_code == 0);
    CHECK(says(imported.out, outcome));
  }
  CHECK(program.value("SELECT count(*) FROM tuning WHERE mode = 'job' AND agent = 'bandit'") == 1);
  // Task, setting, time and regime of every choice.
  CHECK(program
            .value("SELECT count(*) FROM decision WHERE arm <> '' AND task_key <> '' AND "
                   "regime <> '' AND time_us > 0")
            .get<int>() > 0);
  CHECK(program
            .value("SELECT count(*) FROM decision WHERE state_json->>'$.parallelism[4]' IS NOT 1 "
                   "AND kind <> 'final'")
            .get<int>() == 0);
  CHECK(says(program.run({"query", "decisions"}).out, "bandit"));
}

TEST_CASE("Ctrl-C among the pairs tells what those that ended say, and keeps nothing", "[E-102]") {
  const OverSockets sockets;
  const Program program;
  const std::string out = program.folder() + "/tuned";
  const pid_t pid =
      program.start({"tune", "--out", out, "--launches", "2", "--pairs", "9", "--steps", "4",
                     "--warmup-steps", "1", "--call-agent", "none", "--", paced_job(program, "")});
  while (!says(program.said(), "pair 3, ") && !Program::has_ended(pid))
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  INFO(program.said());
  REQUIRE_FALSE(Program::has_ended(pid));
  kill(pid, SIGINT);
  CHECK(Program::wait(pid) == 130);
  INFO(program.said());
  CHECK(says(program.said(), "interrupted, so nothing is kept; "));
  CHECK(says(program.said(), "pairs that ended; every choice:"));
  CHECK_FALSE(says(program.said(), "FAILED"));
  CHECK_FALSE(fs::exists(out + "/nccl.conf"));
}

TEST_CASE("Ctrl-C after pairs enough keeps what they have confirmed, and says how many",
          "[E-102]") {
  const OverSockets sockets;
  const Program program;
  const std::string out = program.folder() + "/tuned";
  // But for the first pair's launch: three pairs leave it open, five do not, and the sixth does not
  // end.
  const std::string job =
      paced_job(program, "[ $launch -lt 13 ] || sleep 1000\n[ $launch -ne 4 ] || pace=4.5e6\n");
  const pid_t pid =
      program.start({"tune", "--out", out, "--launches", "2", "--pairs", "3", "--steps", "4",
                     "--warmup-steps", "1", "--call-agent", "none", "--", job});
  while (!fs::exists(program.folder() + "/started") ||
         text_of(program.folder() + "/started").size() < 13) {
    if (Program::has_ended(pid)) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  INFO(program.said());
  REQUIRE_FALSE(Program::has_ended(pid));
  kill(pid, SIGINT);
  CHECK(Program::wait(pid) == 130);
  const std::string said = program.said();
  INFO(said);
  CHECK(says(said, "FASTER: "));
  CHECK(says(said, "on 5 pairs of fresh launches in turn)"));
  CHECK(says(said, "start the job with\n  NCCL_CONF_FILE="));
  CHECK(says(said, "those that had ended are enough"));
  CHECK(fs::exists(out + "/nccl.conf"));
  CHECK(nlohmann::json::parse(text_of(out + "/table.json")).at("provenance").at("pairs") == 5);
  CHECK(program.value("SELECT count(*) FROM decision WHERE kind = 'final' AND guard = 'pass'") ==
        1);
  CHECK(program.value("SELECT status FROM run") == "interrupted");
  CHECK(nothing_left(program));
}

TEST_CASE("a budget ends the search and the pairs in time, and keeps nothing that is not sure",
          "[E-102]") {
  const OverSockets sockets;
  const Program program;
  const auto begun = std::chrono::steady_clock::now();
  // Far more launches than there is time for.
  const auto tuned = program.run({"tune", "--budget", "20s", "--out", program.folder() + "/tuned",
                                  "--launches", "500", "--pairs", "500", "--steps", "4",
                                  "--warmup-steps", "1", "--call-agent", "none", "--", kJob});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  INFO(tuned.err << tuned.out);
  CHECK(tuned.exit_code == 0);
  // It ends by the budget, not by its launches, which would take many minutes.
  CHECK(took.count() < 120);
  const bool compared = says(tuned.err, "pair 1, ");
  CHECK(compared == says(tuned.err, "the budget is used up"));
  CHECK_FALSE(says(tuned.out, "start the job with"));
  CHECK(nothing_left(program));
}

TEST_CASE("a launch that cannot win is ended after its first steps, and never kept", "[E-102]") {
  const OverSockets sockets;
  const Program program;
  // Whatever its settings, the third launch is far behind the others. Its step is known after some
  // eight repetitions.
  const auto tuned =
      program.run({"tune", "--out", program.folder() + "/tuned", "--launches", "3", "--pairs", "3",
                   "--steps", "24", "--warmup-steps", "1", "--call-agent", "none", "--",
                   paced_job(program, "[ $launch -ne 3 ] || pace=6e5\n")});
  INFO(tuned.err << tuned.out);
  REQUIRE(tuned.exit_code == 0);
  CHECK(says(tuned.err, " a step, which cannot win"));
  const std::string cut =
      "SELECT count(*) FROM decision WHERE task_key LIKE 'nccl/job/step/%' AND "
      "applied_json->>'$.cut' = 1";
  CHECK(program.value(cut) == 1);
  CHECK(program.value(cut + " AND calls BETWEEN 3 AND 18 AND kind <> 'final'") == 1);
  // The others have all of theirs.
  CHECK(program.value("SELECT count(*) FROM decision WHERE applied_json->>'$.cut' = 0 AND "
                      "calls >= 24 AND task_key LIKE 'nccl/job/step/%'") == 2);
  CHECK(says(tuned.out, "FASTER"));
  CHECK(nothing_left(program));
}

TEST_CASE("pairs whose launches fail are told as that, with the job's last words", "[E-102]") {
  const OverSockets sockets;
  const Program program;
  const std::string job =
      paced_job(program, "[ $launch -lt 3 ] || { echo out of memory >&2; exit 9; }\n");
  const auto tuned =
      program.run({"tune", "--out", program.folder() + "/tuned", "--launches", "2", "--pairs", "3",
                   "--steps", "4", "--call-agent", "none", "--", job});
  INFO(tuned.err << tuned.out);
  CHECK(tuned.exit_code == 1);
  CHECK(says(tuned.out,
             ": 6 of the 6 launches of its pairs failed (the command ended with exit "
             "code 9); nothing is kept"));
  CHECK_FALSE(says(tuned.out, "against"));
  CHECK(says(tuned.err, "exit code 9; its last line on stderr: out of memory"));
  CHECK_FALSE(fs::exists(program.folder() + "/tuned/nccl.conf"));
}

TEST_CASE("a search that the default wins has compared nothing, and no verdict", "[E-102]") {
  const OverSockets sockets;
  const Program program;
  const auto tuned =
      program.run({"tune", "--json", "--agent", "default", "--call-agent", "none", "--out",
                   program.folder() + "/tuned", "--launches", "2", "--pairs", "3", "--", kJob});
  INFO(tuned.err << tuned.out);
  REQUIRE(tuned.exit_code == 0);
  const auto answer = nlohmann::json::parse(tuned.out);
  CHECK(answer.at("setting") == "default");
  CHECK(answer.at("verdict").is_null());
  CHECK(answer.at("pairs") == 0);
}

TEST_CASE("sums of three ranks that keep their order: no call's settings are learnt", "[E-64]") {
  const OverNetwork network;
  const Program program;
  const auto tuned = program.run({"tune", "--same-bits", "--out", program.folder() + "/tuned",
                                  "--launches", "3", "--pairs", "3", "--steps", "4",
                                  "--learn-seconds", "1", "--", kJob, "--ranks", "3"});
  INFO(tuned.err << tuned.out);
  REQUIRE(tuned.exit_code == 0);
  CHECK(says(tuned.err, "sums must stay the same bit by bit: "));
  CHECK_FALSE(says(tuned.err, "one_host="));
  CHECK(program.value("SELECT count(*) FROM decision WHERE task_key NOT LIKE 'nccl/job/step/%'") ==
        0);
}

TEST_CASE("Ctrl-C ends the job and the search, and what was learnt is kept", "[E-102]") {
  const OverSockets sockets;
  const Program program;
  const pid_t pid = program.start({"tune", "--out", program.folder() + "/tuned", "--", kJob});
  REQUIRE(program.wait_until("SELECT count(*) FROM decision", 2));
  kill(pid, SIGINT);
  CHECK(Program::wait(pid) == 130);
  CHECK(program.value("SELECT status FROM run") == "interrupted");
  CHECK(says(program.said(), "interrupted, so nothing is kept"));
  CHECK(nothing_left(program));
}
