// An ordinary user of the machine who means harm to root's run.

#include <fmt/format.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>

#include "containers/command.hpp"
#include "containers/paths.hpp"
#include "containers/processes.hpp"
#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/text.hpp"
#include "tests/containers/temp_user.hpp"
#include "tests/e2e/program.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

/// Each line: a name and a command that succeeds where the attack does. $FOLDER holds the run's
/// database and launches, $RUNS is root's run folder, $O the orchestrator, $W a rank.
constexpr const char* kAttacks = R"sh(
kill-orchestrator|kill -9 $O
stop-orchestrator|kill -STOP $O
kill-rank|kill -9 $W
stop-rank|kill -STOP $W
slow-rank|renice -n 19 -p $W
bind-rank|taskset -p -c 0 $W
read-memory-of-rank|head -c 1 /proc/$W/mem
read-variables-of-rank|head -c 1 /proc/$W/environ
read-variables-of-orchestrator|head -c 1 /proc/$O/environ
read-open-files|ls -l /proc/$O/fd/
read-records|cat $FOLDER/runs/*/*/rank0.jsonl
read-settings|cat $FOLDER/runs/*/*/run.json
write-records|echo '{"type":"done"}' >> $FOLDER/runs/*/*/rank0.jsonl
list-launches|ls $FOLDER/runs/*/
remove-launches|rm -r $FOLDER/runs/*/*
join-rendezvous|touch $FOLDER/runs/*/*/rendezvous/x
read-database|head -c 1 $FOLDER/e2e.sqlite
write-database|echo x >> $FOLDER/e2e.sqlite
remove-database|rm $FOLDER/e2e.sqlite
put-a-log-beside-it|touch $FOLDER/e2e.sqlite-journal
lock-database|flock --nonblock $FOLDER/e2e.sqlite true
lock-its-index|flock --nonblock $FOLDER/e2e.sqlite-shm true
move-run-folder|mv $RUNS $RUNS.away
put-into-run-folder|mkdir $RUNS/dyn-00000000-0
replace-owner|echo 1.1.1.1 > $(ls -d $RUNS/dyn-* | head -1)/owner
put-a-script-there|echo 'exit 1' > $(ls -d $RUNS/dyn-* | head -1)/end-ranks
write-shared-memory|for f in /dev/shm/vader_segment.*; do echo x > $f && break; done
remove-shared-memory|for f in $(find /dev/shm -name 'vader_segment.*' -uid 0); do rm $f && exit 0; done; exit 1
)sh";

std::vector<pid_t> pids_of(const Program& program, const std::string& beginning) {
  std::vector<pid_t> found;
  for (const auto& process : list_processes())
    if (process.name.starts_with(beginning) &&
        join(process.argv, " ").find(program.folder()) != std::string::npos)
      found.push_back(process.pid);
  return found;
}

/// Connects to whatever listens on this machine, says nonsense, and stays a moment.
constexpr const char* kNoise = R"sh(
for port in $(awk 'NR > 1 && $4 == "0A" { split($2, a, ":"); print a[2] }' /proc/net/tcp); do
  (exec 3<>/dev/tcp/127.0.0.1/$((16#$port)) && head -c 300 /dev/urandom >&3 && sleep 0.3) 2>/dev/null &
done
wait
)sh";

}  // namespace

TEST_CASE("an ordinary user can neither stop, read nor mislead root's run", "[safety]") {
  if (!is_root()) SKIP("needs root to make a user");
  if (find_program("useradd").empty()) SKIP("needs useradd: apt-get install passwd");
  const TempUser user;
  const Program program;
  const std::string runs = program.folder() + "/../dyn-root-" + std::to_string(getpid());
  setenv("DYNAMICCL_RUN_FOLDER", runs.c_str(), 1);
  // Ranks stand still while they are attacked, so that all attacks meet them, on a busy machine
  // too.
  setenv("DYNAMICCL_STOPPED_S", "1000", 1);
  const pid_t orchestrator = program.start(
      {"run", program.file("x.toml", one_cell("\"bare-metal\"", "openmpi") +
                                         "[protocol]\nwarmup = 0\niterations = 10000000\n"
                                         "cell_time_cap = \"10s\"\nlaunches = 2\nretries = 0\n"
                                         "launch_timeout = \"1000s\"\n")});
  REQUIRE(program.wait_until(kRunning, 1));
  std::vector<pid_t> workers;
  for (int i = 0; i < 6000 && workers.size() < 2; ++i) {
    workers = pids_of(program, "dynamiccl-worke");
    usleep(10000);
  }
  REQUIRE(workers.size() >= 2);
  // Their shared memory is there when they have written something.
  const std::string written =
      "cd " + program.folder() + "/runs/*/* && [ -s rank0.jsonl ] && " + "[ -s rank1.jsonl ]";
  for (int i = 0; i < 6000 && run_command({"/bin/bash", "-c", written}).exit_code != 0; ++i)
    usleep(10000);
  for (const pid_t worker : workers) REQUIRE(kill(worker, SIGSTOP) == 0);
  const std::string places = fmt::format("FOLDER={} RUNS={} O={} W={}\n", program.folder(), runs,
                                         orchestrator, workers[0]);
  int tried = 0;
  for (const auto& line : split(kAttacks, '\n')) {
    const auto bar = line.find('|');
    if (bar == std::string::npos) continue;
    ++tried;
    const std::string script = places + line.substr(bar + 1);
    INFO(line);
    CHECK(user.run([&] {
      return std::to_string(run_command({"/bin/bash", "-c", script}).exit_code);
    }) != "0");
  }
  CHECK(tried >= 20);
  user.run([] { return run_command({"/bin/bash", "-c", kNoise}).out; });
  for (const pid_t worker : workers) kill(worker, SIGCONT);
  CHECK(Program::wait(orchestrator) == 0);
  CHECK(program.value(kOkLaunches) == 2);
  CHECK(program.value("SELECT count(*) FROM launch") == 2);
  CHECK(program.processes().empty());
  unsetenv("DYNAMICCL_RUN_FOLDER");
  unsetenv("DYNAMICCL_STOPPED_S");
  fs::remove_all(runs);
}

TEST_CASE("users that measure and clean at the same time do not meet", "[safety]") {
  if (!is_root()) SKIP("needs root to make users");
  if (find_program("useradd").empty()) SKIP("needs useradd: apt-get install passwd");
  const Program program;
  const TempUser users[2];
  if (users[0].run([&] {
        return std::string(access(program.path().c_str(), X_OK) == 0 ? "" : "no");
      }) == "no")
    SKIP("other users may not read " + program.path());
  const auto path = program.file("x.toml", one_cell("\"bare-metal\"", "gloo") +
                                               "[protocol]\nwarmup = 0\niterations = 1000000\n"
                                               "cell_time_cap = \"1s\"\nlaunches = 2\n"
                                               "retries = 0\n");
  fs::permissions(program.folder(), fs::perms(0711));
  fs::permissions(path, fs::perms(0644));
  // In the user's home with default places; `clean` until the run has ended.
  const std::string script = fmt::format(
      "unset XDG_RUNTIME_DIR; cp {1} x.toml && {0} run x.toml >run.txt 2>&1 & run=$!\n"
      "while kill -0 $run 2>/dev/null; do {0} clean >>clean.txt 2>&1 || exit 9; done\n"
      "wait $run || exit 8\n"
      "{0} query \"SELECT count(*) AS n FROM launch WHERE status = 'ok'\" --json; cat clean.txt\n"
      "{0} list --db {2} 2>&1; echo code $?; {0} run x.toml --db {2} 2>&1; echo code $?\n",
      program.path(), path, program.db());
  const pid_t roots = program.start({"run", path});
  REQUIRE(program.wait_until(kRunning, 1));
  const std::string begin =
      "setsid bash -c " + shell_quote(script + "touch done") + " >said.txt 2>&1 </dev/null &";
  for (const TempUser& user : users)
    user.run([&] { return run_command({"/bin/bash", "-c", begin}).out; });
  for (const TempUser& user : users)
    for (int i = 0; i < 600 && !fs::exists(user.home() + "/done"); ++i) {
      CHECK(program.run({"clean"}).exit_code == 0);
      usleep(300000);
    }
  CHECK(Program::wait(roots) == 0);
  for (const TempUser& user : users) {
    const std::string said = read_file(user.home() + "/said.txt").value_or("");
    INFO(said);
    CHECK(fs::exists(user.home() + "/done"));
    CHECK_THAT(said, ContainsSubstring("\"n\": 2") && ContainsSubstring("nothing was left over") &&
                         !ContainsSubstring("removed"));
    // Root's database is told as such, by who reads and who would write.
    CHECK_THAT(said, ContainsSubstring("it belongs to another user (number 0)") &&
                         ContainsSubstring("code 2") && !ContainsSubstring("code 0"));
  }
  CHECK(program.value(kOkLaunches) == 2);
  CHECK(program.value("SELECT count(*) FROM run") == 1);
  CHECK(program.processes().empty());
  // The page of a run is no more open than the database that it is made of.
  for (const auto& entry : fs::directory_iterator(program.folder()))
    if (entry.path().extension() == ".html")
      CHECK((fs::status(entry.path()).permissions() & fs::perms(077)) == fs::perms::none);
}
