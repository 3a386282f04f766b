// What others of the machine, and the job itself, may do to `dynamiccl tune -- COMMAND`.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <set>
#include <sstream>
#include <thread>

#include "containers/command.hpp"
#include "tests/e2e/own_job.hpp"

using namespace dynamiccl;
namespace fs = std::filesystem;

namespace {

int as_another_user(const std::string& line) {
  return run_command({"setpriv", "--reuid", "65533", "--regid", "65533", "--clear-groups", "sh",
                      "-c", line})
      .exit_code;
}

/// @returns a script that the program can start
std::string script(const Program& program, const std::string& lines) {
  const std::string path = program.file("job.sh", "#!/bin/sh\n" + lines);
  fs::permissions(path, fs::perms::owner_all);
  return path;
}

bool runs(const std::string& word) {
  const auto all = list_processes();
  return std::any_of(all.begin(), all.end(), [&](const ProcessInfo& one) {
    return std::find(one.argv.begin(), one.argv.end(), word) != one.argv.end();
  });
}

}  // namespace

TEST_CASE("another user can neither mislead, end nor hold up root's search", "[safety]") {
  if (geteuid() != 0) SKIP("needs root to be another user");
  const OverSockets sockets;
  const Program program;
  const std::string out = program.folder() + "/tuned";
  REQUIRE(chmod(program.folder().c_str(), 0755) == 0);
  const pid_t pid =
      program.start({"tune", "--out", out, "--trial-seconds", "60", "--", kJob, "--steps", "2000"});
  REQUIRE(program.wait_until("SELECT count(*) FROM decision", 1));
  const auto other_user = [](const std::string& line) {
    return run_command({"setpriv", "--reuid", "65533", "--regid", "65533", "--clear-groups", "sh",
                        "-c", line})
        .exit_code;
  };
  // Its folder is met, its launches' are not.
  CHECK(other_user("ls " + out + "/launches") == 0);
  for (const std::string& attack :
       {"touch " + out + "/launches/launch-000/calls-x.ring", "ls " + out + "/launches/launch-000",
        "touch " + out + "/launches/x", "test -r " + out + "/launches/lock"}) {
    INFO(attack);
    CHECK(other_user(attack) != 0);
  }
  kill(pid, SIGINT);
  CHECK(Program::wait(pid) == 130);
  CHECK(nothing_left(program));
}

TEST_CASE("what a killed search leaves of its launch is ended by clean", "[E-102]") {
  const OverSockets sockets;
  const Program program;
  const pid_t pid = program.start({"tune", "--out", program.folder() + "/tuned", "--", kJob});
  REQUIRE(program.wait_until("SELECT count(*) FROM decision", 2));
  kill(pid, SIGKILL);
  Program::wait(pid);
  CHECK(program.run({"clean"}).exit_code == 0);
  CHECK(nothing_left(program));
}

TEST_CASE("ranks that have left session and environment end with their launch", "[E-102]") {
  const OverSockets sockets;
  const Program program;
  const std::string script =
      "setsid env -i PATH=\"$PATH\" NCCL_CONF_FILE=\"$NCCL_CONF_FILE\" " + kJob + " & sleep 100";
  const auto tuned =
      program.run({"tune", "--out", program.folder() + "/tuned", "--agent", "default",
                   "--call-agent", "none", "--", "/bin/sh", "-c", script});
  INFO(tuned.err);
  CHECK(tuned.exit_code == 0);
  CHECK(nothing_left(program));
}

TEST_CASE("what an earlier search left in its folder is none of the next one's ranks", "[safety]") {
  const OverSockets sockets;
  const Program program;
  const std::vector<std::string> tune{"tune",    "--out",   program.folder() + "/tuned",
                                      "--agent", "default", "--call-agent",
                                      "none",    "--"};
  auto job = tune;
  job.push_back(kJob);
  const pid_t pid = program.start(job);
  REQUIRE(program.wait_until("SELECT count(*) FROM decision", 1));
  kill(pid, SIGKILL);
  Program::wait(pid);
  REQUIRE(program.run({"clean"}).exit_code == 0);
  const fs::path launch = program.folder() + "/tuned/launches/launch-000";
  const auto ranks_told = [&] {
    std::size_t ranks = 0;
    for (const auto& file : fs::directory_iterator(launch))
      ranks += static_cast<std::size_t>(file.path().filename().string().starts_with("rank-"));
    return ranks;
  };
  REQUIRE(ranks_told() == 2);
  auto none = tune;
  none.insert(none.end(), {"sleep", "1"});
  CHECK(says(program.run(none).err, "no rank of it loaded the plugin"));
  const auto again = program.run(job);
  INFO(again.err);
  CHECK(again.exit_code == 0);
  CHECK(ranks_told() == 2);
  CHECK(nothing_left(program));
}

TEST_CASE("a folder that a stranger exchanges during a search gets nothing more", "[safety]") {
  if (geteuid() != 0) SKIP("needs root to be another user");
  const OverSockets sockets;
  const Program program;
  REQUIRE(chmod(program.folder().c_str(), 0755) == 0);
  const std::string everybodys = program.folder() + "/everybodys";
  const std::string out = everybodys + "/o";
  fs::create_directory(everybodys);
  const pid_t pid = program.start({"tune", "--out", out, "--call-agent", "none", "--", kJob});
  REQUIRE(program.wait_until("SELECT count(*) FROM decision", 1));
  REQUIRE(chmod(everybodys.c_str(), 0777) == 0);
  REQUIRE(as_another_user("cd " + everybodys +
                          " && mv o old && mkdir -p o/launches && chmod 777 o o/launches") == 0);
  CHECK(Program::wait(pid) == 1);
  INFO(program.said());
  CHECK(says(program.said(), "it has been exchanged or opened to others since this began"));
  CHECK(fs::is_empty(out + "/launches"));
  CHECK_FALSE(fs::exists(out + "/nccl.conf"));
  CHECK_FALSE(says(program.said(), "start the job with"));
  CHECK(nothing_left(program));

  // Where that could be done nothing is begun.
  const auto refused = program.run({"tune", "--out", everybodys + "/new", "--", kJob});
  CHECK(refused.exit_code == 2);
  CHECK(
      says(refused.err, everybodys + ": every user of this machine may exchange what lies there"));
}

TEST_CASE("a job has nothing written outside of its folder, whatever it links there", "[safety]") {
  const OverSockets sockets;
  const Program program;
  const std::string out = program.folder() + "/tuned";
  const std::string victim = program.folder() + "/victim";
  fs::create_directory(victim);
  const std::string launches = out + "/launches";
  for (const std::string& change :
       {"mv " + launches + " " + out + "/away; ln -s " + victim + " " + launches,
        "rm -rf " + launches + "; ln -s " + victim + " " + launches,
        "mv " + out + " " + out + "-away; ln -s " + victim + " " + out,
        "ln -s " + victim + " " + launches + "/launch-001", "rm -rf " + out}) {
    INFO(change);
    fs::remove_all(out);
    fs::remove_all(out + "-away");
    const auto tuned =
        program.run({"tune", "--out", out, "--launches", "2", "--pairs", "3", "--steps", "4",
                     "--warmup-steps", "1", "--call-agent", "none", "--",
                     script(program, "(sleep 1; " + change + ") &\nexec " + kJob + "\n")});
    INFO(tuned.err);
    CHECK(tuned.exit_code == 1);
    CHECK((says(tuned.err, "nothing more is written there") ||
           says(tuned.err, "a link is not followed")));
    CHECK(fs::is_empty(victim));
    CHECK(nothing_left(program));
  }
}

TEST_CASE("no process of a job is left, and clean finds those of a search that was killed",
          "[E-102][safety]") {
  const OverSockets sockets;
  const Program program;
  const std::string job = script(program,
                                 "(setsid env -i sleep 77771 &)\n"
                                 "(setsid env -i sh -c 'trap \"\" TERM INT HUP; "
                                 "while :; do sleep 0.3; done' 77771 &)\nexec " +
                                     kJob + "\n");
  const std::vector<std::string> tune{"tune",    "--out",   program.folder() + "/tuned",
                                      "--agent", "default", "--call-agent",
                                      "none",    "--",      job};
  const auto tuned = program.run(tune);
  INFO(tuned.err);
  CHECK(tuned.exit_code == 0);
  CHECK_FALSE(runs("77771"));
  const pid_t pid = program.start(tune);
  while (!runs("77771") && !Program::has_ended(pid))
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  REQUIRE_FALSE(Program::has_ended(pid));
  kill(pid, SIGKILL);
  Program::wait(pid);
  CHECK(runs("77771"));
  CHECK(program.run({"clean"}).exit_code == 0);
  CHECK_FALSE(runs("77771"));
  CHECK(nothing_left(program));
}

TEST_CASE("a line without an end is cut where a job's last words are told", "[safety]") {
  const Program program;
  const auto tuned =
      program.run({"tune", "--out", program.folder() + "/tuned", "--", "/bin/sh", "-c",
                   "head -c 131072 /dev/zero | tr '\\0' x >&2; echo >&2; exit 9"});
  CHECK(tuned.exit_code == 2);
  CHECK(tuned.err.size() < 4000);
  CHECK(says(tuned.err, "xxx ... ("));
  CHECK(says(tuned.err, " more bytes)"));
}

TEST_CASE("a search on a full disk ends before it starts the job", "[safety]") {
  if (geteuid() != 0) SKIP("needs root to mount a small disk");
  Program program;
  const std::string disk = program.folder() + "/disk";
  fs::create_directory(disk);
  program.start_behind({"unshare", "--mount", "sh", "-c",
                        "mount -t tmpfs -o size=600k small " + disk + " && exec \"$@\"", "sh"});
  const auto tuned =
      program.run({"tune", "--out", disk + "/tuned", "--", "touch", program.folder() + "/started"});
  INFO(tuned.err);
  CHECK(tuned.exit_code == 1);
  CHECK(says(tuned.err, "are free there, too little for what the ranks tell of their calls"));
  CHECK_FALSE(fs::exists(program.folder() + "/started"));
}

TEST_CASE("a disk that the job fills ends its launch at once", "[safety]") {
  if (geteuid() != 0) SKIP("needs root to mount a small disk");
  Program program;
  const std::string disk = program.folder() + "/disk";
  fs::create_directory(disk);
  program.start_behind({"unshare", "--mount", "sh", "-c",
                        "mount -t tmpfs -o size=6m small " + disk + " && exec \"$@\"", "sh"});
  const auto tuned = program.run({"tune", "--trial-seconds", "1000", "--out", disk + "/tuned", "--",
                                  "/bin/sh", "-c", "cat /dev/zero >" + disk + "/fill; sleep 1000"});
  INFO(tuned.err);
  CHECK(tuned.exit_code == 1);
  CHECK(says(tuned.err, "0 B are free there, too little for what the ranks tell of their calls"));
  CHECK(nothing_left(program));
}

TEST_CASE("ranks of two users agree where the job's folder is open to both", "[safety][E-118]") {
  if (geteuid() != 0) SKIP("needs root to be another user");
  const Program program;
  const std::string folder = program.folder() + "/shared";
  const std::string plugin = DYNAMICCL_BINARY_DIR "/libdynamiccl-nccl-plugin.so";
  const std::string rank = DYNAMICCL_BINARY_DIR "/tests/tuned-rank";
  fs::create_directory(folder);
  for (const std::string& open : {program.folder(), folder})
    REQUIRE(chmod(open.c_str(), 01777) == 0);
  if (as_another_user("test -r " + plugin + " && test -x " + rank) != 0)
    SKIP("another user cannot reach what is built");
  const std::string user = "setpriv --reuid 65533 --regid 65533 --clear-groups ";
  const std::string job =
      "cd " + program.folder() + " && umask 0 && export NCCL_TUNER_PLUGIN=" + plugin +
      " NCCL_PROFILER_PLUGIN=" + plugin + " DYNAMICCL_TUNER_FOLDER=" + folder + "; touch sync; " +
      DYNAMICCL_BINARY_DIR "/dynamiccl-leader " + folder +
      " --agent random --calls 4 2>leader.txt & " + rank + " 0 2 77 sync log0 1500 & one=$!; " +
      user + rank + " 1 2 77 sync log1 1500 & wait $one && wait $! && wait";
  CHECK(std::system(("sh -c '" + job + "'").c_str()) == 0);
  const std::string first = text_of(program.folder() + "/log0");
  INFO(text_of(program.folder() + "/leader.txt"));
  CHECK(std::count(first.begin(), first.end(), '\n') == 1500);
  CHECK(first == text_of(program.folder() + "/log1"));
  // They were led.
  std::istringstream lines(first);
  std::set<std::string> settings;
  for (std::string line; std::getline(lines, line);) settings.insert(line);
  CHECK(settings.size() > 1);
}
