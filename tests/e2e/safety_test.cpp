// Runs whose surroundings break: streams, ranks, the database.

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include "containers/command.hpp"
#include "containers/processes.hpp"
#include "core/vocabulary/text.hpp"
#include "tests/e2e/program.hpp"
#include "tests/sanitizers.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Matches;
namespace fs = std::filesystem;

namespace {

std::string experiment(const std::string& protocol) {
  return one_cell("\"bare-metal\"", "openmpi") + "[protocol]\nwarmup = 0\n" + protocol;
}

/// The launcher's or ours; "" where it has none.
std::string rank_of_worker(pid_t pid) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "DYNAMICCL_RANK"})
    if (auto rank = process_variable(pid, name); !rank.empty()) return rank;
  return "";
}

std::string quick(int launches) {
  return "iterations = 5\nretries = 0\nlaunches = " + std::to_string(launches) + "\n";
}

/// A launch that is under way however late something meets it.
const std::string kWithoutEnd = "iterations = 10000000\ncell_time_cap = \"10min\"\nlaunches = 1\n";

/// The kernel's name of the process that made this one; "" when either is gone.
std::string parent_name(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("PPid:\t")) {
      std::ifstream file("/proc/" + line.substr(6) + "/comm");
      std::string name;
      std::getline(file, name);
      return name;
    }
  return "";
}

/// Workers of the launch that runs in the program's folder: ranks alone. A rank that looks whether
/// it can read another's memory makes a process for that, which looks like itself and whose end it
/// does not mind.
/// @param runs what their command line begins with, at its end
std::vector<pid_t> workers_of(const Program& program, const std::string& runs = "") {
  std::vector<pid_t> found;
  for (const auto& process : list_processes()) {
    if (!process.name.starts_with("dynamiccl-worke") || process.argv.empty() ||
        !process.argv.front().ends_with(runs) ||
        parent_name(process.pid).starts_with("dynamiccl-worke"))
      continue;
    for (const auto& word : process.argv)
      if (word.find(program.folder()) != std::string::npos) {
        found.push_back(process.pid);
        break;
      }
  }
  return found;
}

std::vector<pid_t> wait_for_workers(const Program& program, std::size_t count,
                                    const std::string& runs = "") {
  for (int i = 0; i < 6000; ++i) {
    if (auto found = workers_of(program, runs); found.size() >= count) return found;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return {};
}

/// Until so many ranks have written the first of their records.
bool wait_for_records(const Program& program, int ranks) {
  const auto written = [&] {
    int files = 0;
    std::error_code gone;
    // Folders go while they are read.
    for (fs::recursive_directory_iterator at(program.folder(), gone), end; !gone && at != end;
         at.increment(gone)) {
      std::error_code none;
      if (at->path().extension() == ".jsonl" && fs::file_size(at->path(), none) > 0 && !none)
        ++files;
    }
    return files;
  };
  for (int i = 0; i < 6000 && written() < ranks; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return written() >= ranks;
}

CommandResult shell(const std::string& line) {
  return run_command({"/bin/bash", "-c", "set -o pipefail; " + line});
}

std::string program_line(const Program& program, const std::string& path) {
  return program.path() + " run " + path + " --db " + program.db();
}

}  // namespace

TEST_CASE("a run goes on whatever becomes of its stderr", "[safety]") {
  for (const char* stderr_is : {"2>/dev/full", "2>&-"}) {
    INFO(stderr_is);
    const Program program;
    const auto path = program.file("x.toml", experiment(quick(2)));
    CHECK(shell(program_line(program, path) + " >/dev/null " + stderr_is).exit_code == 0);
    CHECK(program.value(kOkLaunches) == 2);
  }
}

TEST_CASE("a closed pipe does not end a run as a success", "[safety]") {
  const Program program;
  const auto path = program.file("x.toml", experiment(quick(3)));
  const auto piped = shell(program_line(program, path) + " 2>&1 | head -1");
  CHECK(program.value(kOkLaunches) == 3);
  CHECK(piped.exit_code == 1);
  const Program other;
  CHECK(shell(program_line(other, other.file("x.toml", experiment(quick(1)))) + " >/dev/full")
            .exit_code == 1);
}

TEST_CASE("a rank that a signal ended is stored as such, by its number where the launcher knows it",
          "[safety]") {
  const Program program;
  const std::string backend = GENERATE("openmpi", "mpich", "gloo");
  if (backend == "mpich" && find_program("mpirun.mpich").empty()) SKIP("no mpirun.mpich in PATH");
  INFO(backend);
  const pid_t pid =
      program.start({"run", program.file("x.toml", one_cell("\"bare-metal\"", backend) +
                                                       "[protocol]\nwarmup = 0\n" + kWithoutEnd +
                                                       "retries = 0\n")});
  const auto workers = wait_for_workers(program, 2);
  REQUIRE(workers.size() >= 2);
  // Open MPI's launcher may stand still, and not say why, where a rank goes while it starts others.
  REQUIRE(wait_for_records(program, 2));
  const auto rank = rank_of_worker(workers.back());
  CHECK_FALSE(rank.empty());
  kill(workers.back(), SIGKILL);
  CHECK(Program::wait(pid) == 1);
  const auto launch = program.rows("SELECT signal, reason FROM launch WHERE status = 'failed'");
  REQUIRE(launch.size() == 1);
  const auto reason = launch[0]["reason"].get<std::string>();
  CHECK_THAT(reason, ContainsSubstring("had measured 0 of 1"));
  if (reason.find("every rank had ended and the launcher had not") != std::string::npos)
    SKIP("Open MPI's launcher stood still, and knows of no signal: " << reason);
  CHECK(launch[0]["signal"] == 9);
  // MPICH's launcher ends the others, and may name one of them.
  CHECK_THAT(reason, ContainsSubstring((backend == "mpich" ? "a process" : "rank " + rank) +
                                       " was ended by signal 9"));
}

TEST_CASE("what ranks of a killed launcher leave in shared memory goes with the run", "[safety]") {
  const auto left = [] {
    std::set<std::string> names;
    for (const char* folder : {"/dev/shm", "/tmp"})
      for (const auto& entry : fs::directory_iterator(folder))
        if (const auto name = entry.path().filename().string();
            name.starts_with("vader_segment.") || name.starts_with("ompi."))
          names.insert(entry.path().string());
    return names;
  };
  const auto before = left();
  const Program program;
  const pid_t pid = program.start({"run", program.file("x.toml", experiment(kWithoutEnd))});
  REQUIRE(wait_for_workers(program, 2).size() >= 2);
  for (int i = 0; i < 6000 && left() == before; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  // Launcher and ranks at once: nobody is left who could tidy.
  for (const auto& process : list_processes())
    if (process.name == "mpirun.openmpi" &&
        join(process.argv, " ").find(program.folder()) != std::string::npos)
      kill(process.pid, SIGKILL);
  for (const pid_t worker : workers_of(program)) kill(worker, SIGKILL);
  kill(pid, SIGKILL);
  CHECK(Program::wait(pid) == 128 + SIGKILL);
  CHECK(program.run({"clean"}).exit_code == 0);
  CHECK(left() == before);
}

TEST_CASE("of a launch without an end every rank's state is stored", "[safety]") {
  Program program;
  // Ranks that say something before they measure.
  const std::string binaries = DYNAMICCL_BINARY_DIR;
  const auto speaking =
      program.file("speaking", "#!/bin/sh\necho \"waiting for rank zero\" >&2\nexec " + binaries +
                                   "/dynamiccl-worker-openmpi \"$@\"\n");
  fs::permissions(speaking, fs::perms::owner_exec, fs::perm_options::add);
  program.replace_worker("dynamiccl-worker-openmpi", speaking);
  const pid_t pid = program.start(
      {"run", program.file("x.toml",
                           experiment(kWithoutEnd + "retries = 0\nlaunch_timeout = \"15s\"\n"))});
  // Those that have spoken are the shell no longer.
  const auto workers = wait_for_workers(program, 2, "dynamiccl-worker-openmpi");
  REQUIRE(workers.size() >= 2);
  kill(workers.back(), SIGSTOP);
  CHECK(Program::wait(pid) == 1);
  const std::string reason = program.value("SELECT reason FROM launch");
  CHECK_THAT(reason, ContainsSubstring("no end after 15"));
  // The state of each, where in the kernel it is, the call it is in, what it said last.
  CHECK_THAT(reason, Matches("[^]*rank 1[^;]*: stopped, in [a-z_]+[^]*") ||
                         Matches("[^]*rank 0[^;]*: stopped, in [a-z_]+[^]*"));
  for (const std::string rank : {"rank 0", "rank 1"})
    CHECK_THAT(reason,
               ContainsSubstring(rank + " had measured 0 of 1 cell, next allreduce of 1024 bytes"));
  CHECK_THAT(reason, ContainsSubstring("waiting for rank zero"));
  CHECK(program.processes().empty());
}

namespace {

/// A control group below this process's own in which no more than so much memory may be used; gone
/// with the object.
class MemoryGroup {
 public:
  explicit MemoryGroup(std::size_t bytes) {
    std::ifstream lines("/proc/self/cgroup");
    for (std::string line; std::getline(lines, line);) {
      const bool unified = line.starts_with("0::");
      if (!unified && line.find(":memory:") == std::string::npos) continue;
      const auto root = std::string("/sys/fs/cgroup") + (unified ? "" : "/memory");
      const auto path = root +
                        line.substr(line.find(unified ? "::" : ":memory:") + (unified ? 2 : 8)) +
                        "/dynamiccl-test-" + std::to_string(getpid());
      std::error_code refused;
      if (!fs::create_directory(path, refused)) continue;
      if (write(path + (unified ? "/memory.max" : "/memory.limit_in_bytes"), bytes)) {
        if (unified) write(path + "/memory.swap.max", 0);
        path_ = path;
        return;
      }
      fs::remove(path, refused);
    }
  }
  ~MemoryGroup() {
    if (!path_.empty()) rmdir(path_.c_str());
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  static bool write(const std::string& file, std::size_t value) {
    std::ofstream stream(file, std::ios::in | std::ios::out);
    stream << value << std::flush;
    return static_cast<bool>(stream);
  }
  std::string path_;
};

}  // namespace

TEST_CASE("a rank that the kernel ended for want of memory is told as such", "[safety]") {
  if (testing::kAddressSanitizer) SKIP("the program itself takes as much with that sanitizer");
  const MemoryGroup group(std::size_t{256} << 20);
  if (group.path().empty())
    SKIP("no control group with a memory limit can be made here (root and its controller needed)");
  const Program program;
  auto text = experiment(quick(1));
  text.replace(text.find("1KiB"), 4, "512MiB");
  const auto path = program.file("x.toml", text);
  const auto run =
      shell("echo $$ > " + group.path() + "/cgroup.procs && exec " + program_line(program, path));
  INFO(run.err);
  CHECK(run.exit_code == 1);
  const auto launch = program.rows("SELECT signal, status, reason FROM launch");
  REQUIRE(launch.size() == 1);
  CHECK(launch[0]["status"] == "failed");
  CHECK(launch[0]["signal"] == 9);
  CHECK_THAT(launch[0]["reason"].get<std::string>(),
             ContainsSubstring("ended by signal 9") && ContainsSubstring("for want of memory") &&
                 ContainsSubstring("oom_kill of this control group") &&
                 ContainsSubstring("next allreduce of"));
  CHECK(program.processes().empty());
}

TEST_CASE("a run whose terminal closes ends by 129 and leaves nothing", "[safety]") {
  const Program program;
  int terminal = -1;
  const pid_t pid =
      program.start_in_terminal({"run", program.file("x.toml", experiment(kWithoutEnd))}, terminal);
  REQUIRE(wait_for_workers(program, 2).size() >= 2);
  close(terminal);
  CHECK(Program::wait(pid) == 128 + SIGHUP);
  CHECK(program.processes().empty());
  CHECK_FALSE(fs::exists(program.db() + "-wal"));
  CHECK(program.value("SELECT status FROM run") == "interrupted");
  CHECK(program.value(kRunning) == 0);
}

TEST_CASE("a pipe or a device in an owner's place holds up no run and no clean", "[safety]") {
  const Program program;
  const std::string folder = program.folder() + "/runs";
  for (const std::string name : {"dyn-pipe-0", "dyn-zero-0"})
    fs::create_directories(folder + "/" + name);
  REQUIRE(mkfifo((folder + "/dyn-pipe-0/owner").c_str(), 0600) == 0);
  fs::create_symlink("/dev/zero", folder + "/dyn-zero-0/owner");
  for (const std::string name : {"dyn-pipe-0", "dyn-zero-0"})
    fs::last_write_time(folder + "/" + name,
                        fs::file_time_type::clock::now() - std::chrono::minutes(2));
  // The address sanitizer maps terabytes.
  const std::string limits = std::string(testing::kAddressSanitizer ? "" : "ulimit -v 4000000; ") +
                             "DYNAMICCL_RUN_FOLDER=" + folder + " timeout 300 ";
  const auto run =
      shell(limits + program_line(program, program.file("x.toml", experiment(quick(1)))));
  INFO(run.err);
  CHECK(run.exit_code == 0);
  const auto clean = shell(limits + DYNAMICCL_BINARY_DIR + "/dynamiccl clean");
  INFO(clean.err);
  CHECK(clean.exit_code == 0);
  CHECK_FALSE(fs::exists(folder + "/dyn-pipe-0"));
  CHECK_FALSE(fs::exists(folder + "/dyn-zero-0"));
}

TEST_CASE("clean removes what killed ranks left in their folder, and that alone", "[safety]") {
  const Program program;
  const std::string shared = program.folder() + "/shared";
  fs::create_directory(shared);
  // A memory of its own, as a container has it: of a folder of the machine that is mounted here
  // (apart.sh's /tmp) others may have files in use.
  const bool own = unshare(CLONE_NEWNS) == 0 &&
                   mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                   mount("tmpfs", shared.c_str(), "tmpfs", 0, "mode=700") == 0;
  const auto bound = [&](const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", shared.c_str(), name.c_str());
    const int file = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    REQUIRE(bind(file, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    return file;
  };
  const int living = bound("nccl-socket-0-1");
  close(bound("nccl-socket-1-1"));
  const int used = open((shared + "/nccl-shm-abcdef").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  for (const char* name : {"/nccl-shm-ghijkl", "/nccl-gpu-00000000:1b:00.0", "/notes.txt"})
    std::ofstream(shared + name) << "x";
  const auto cleaned =
      shell("DYNAMICCL_RUN_FOLDER=" + program.folder() + "/runs DYNAMICCL_SHARED_FOLDER=" + shared +
            " " + DYNAMICCL_BINARY_DIR + "/dynamiccl clean --db " + program.db());
  INFO(cleaned.err << cleaned.out);
  for (const char* name : {"nccl-socket-1-1", "nccl-shm-ghijkl", "nccl-gpu-00000000:1b:00.0"}) {
    CHECK_THAT(cleaned.out, ContainsSubstring("removed file " + shared + "/" + name + "\n"));
    CHECK_FALSE(fs::exists(shared + "/" + name));
  }
  for (const char* name : {"nccl-socket-0-1", "nccl-shm-abcdef", "notes.txt"})
    CHECK(fs::exists(shared + "/" + name));
  close(living);
  close(used);
  if (own) CHECK(umount2(shared.c_str(), MNT_DETACH) == 0);
}

TEST_CASE("a database that is replaced under a run loses neither's launches", "[safety]") {
  Program program;
  const Program other;
  REQUIRE(other.run({"run", other.file("x.toml", experiment(quick(2)))}).exit_code == 0);
  program.hold_launches(1);
  const pid_t pid = program.start({"run", program.file("x.toml", experiment(quick(3)))});
  REQUIRE(program.wait_until(kOkLaunches, 1));
  const std::string moved = program.folder() + "/moved.sqlite";
  fs::rename(program.db(), moved);
  fs::copy_file(other.db(), program.db());
  program.let_go();
  CHECK(Program::wait(pid) == 1);
  // The other's launches are all there, ours are in the file that was moved.
  CHECK_FALSE(fs::exists(program.db() + "-wal"));
  CHECK(program.value(kOkLaunches) == 2);
  const auto ours = run_command({std::string(DYNAMICCL_BINARY_DIR) + "/dynamiccl", "query",
                                 "SELECT count(*) AS n FROM launch WHERE status = 'ok'", "--json",
                                 "--db", moved});
  CHECK(nlohmann::json::parse(ours.out)[0]["n"].get<int>() >= 1);
  CHECK(program.processes().empty());
}

namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The lines that the last started program wrote.
std::string said_by(const Program& program) { return text_of(program.folder() + "/program.log"); }

}  // namespace

TEST_CASE("a database that is moved under a run keeps what it has", "[safety]") {
  Program program;
  program.hold_launches(1);
  const pid_t pid = program.start({"run", program.file("x.toml", experiment(quick(2)))});
  REQUIRE(program.wait_until(kOkLaunches, 1));
  const std::string moved = program.folder() + "/moved.sqlite";
  fs::rename(program.db(), moved);
  program.let_go();
  CHECK(Program::wait(pid) == 1);
  CHECK_THAT(said_by(program), ContainsSubstring("moved or deleted"));
  CHECK_FALSE(fs::exists(program.db()));
  CHECK_FALSE(fs::exists(program.db() + "-wal"));
  fs::rename(moved, program.db());
  CHECK(program.value(kOkLaunches) >= 1);
  CHECK(program.processes().empty());
}

TEST_CASE("a database that is deleted under a run is not made again", "[safety]") {
  Program program;
  program.hold_launches(1);
  const pid_t pid = program.start({"run", program.file("x.toml", experiment(quick(2)))});
  REQUIRE(program.wait_until(kOkLaunches, 1));
  fs::remove(program.db());
  program.let_go();
  CHECK(Program::wait(pid) == 1);
  CHECK_THAT(said_by(program), ContainsSubstring("moved or deleted"));
  CHECK_FALSE(fs::exists(program.db()));
  CHECK_FALSE(fs::exists(program.db() + "-wal"));
  CHECK(program.processes().empty());
}

TEST_CASE("a resume that cannot measure what is missing does not end as complete", "[safety]") {
  Program program;
  program.hold_launches(1);
  const auto path = program.file("x.toml", experiment(quick(3)));
  const pid_t pid = program.start({"run", path});
  REQUIRE(program.wait_until(kOkLaunches, 1));
  kill(pid, SIGINT);
  CHECK(Program::wait(pid) == 130);
  program.let_go();
  REQUIRE(program.value(kOkLaunches) == 1);
  // The launcher that measured before is not to be found now.
  const auto without = shell("PATH=/nowhere " + program_line(program, path) + " --resume");
  INFO(without.err);
  CHECK(without.exit_code == 1);
  CHECK_THAT(without.err, ContainsSubstring("lacks launches that it can no longer have"));
  CHECK(program.value("SELECT status FROM run") == "failed");
  const auto fixed = program.run({"run", path, "--resume"});
  INFO(fixed.err);
  CHECK(fixed.exit_code == 0);
  CHECK(program.value("SELECT status FROM run") == "complete");
  CHECK(program.value(kOkLaunches) == 3);
}

TEST_CASE("a folder for launches that may not be written is named with the reason", "[safety]") {
  const Program program;
  const auto path = program.file("x.toml", experiment(quick(1)));
  const std::string out = program.folder() + "/out";
  std::ofstream(out) << "a file\n";
  const auto result = program.run({"run", path, "--out", out});
  CHECK(result.exit_code != 0);
  CHECK_THAT(result.err, !ContainsSubstring("No such file or directory"));
  CHECK_THAT(result.err, ContainsSubstring(out));
}

TEST_CASE("a run folder that cannot be made is named with the reason", "[safety]") {
  if (getuid() != 0 || find_program("unshare").empty()) SKIP("a read-only mount needs root");
  const Program program;
  const auto path = program.file("x.toml", experiment(quick(1)));
  const std::string closed = program.folder() + "/closed";
  fs::create_directory(closed);
  for (const std::string& runs : {closed + "/runs", closed + "/deep/runs"}) {
    INFO(runs);
    const auto refused =
        shell("unshare --mount /bin/bash -c 'mount --bind " + closed + " " + closed +
              " && mount -o remount,bind,ro " + closed + " && DYNAMICCL_RUN_FOLDER=" + runs +
              " exec " + program_line(program, path) + "'");
    CHECK(refused.exit_code == 1);
    CHECK_THAT(refused.err,
               ContainsSubstring("cannot make the run folder " + runs + ": Read-only file system"));
    CHECK_THAT(refused.err, !ContainsSubstring("No such file or directory"));
  }
}

TEST_CASE("who takes root's usual run folder first does not hold up root", "[safety]") {
  if (getuid() != 0 || find_program("unshare").empty()) SKIP("a mount of its own needs root");
  const Program program;
  const auto path = program.file("x.toml", experiment(quick(1)));
  const std::string taken = program.folder() + "/taken";
  fs::create_directory(taken);
  REQUIRE(chown(taken.c_str(), 12345, 12345) == 0);
  for (const mode_t mode : {mode_t{0755}, mode_t{0777}}) {
    INFO(mode);
    REQUIRE(chmod(taken.c_str(), mode) == 0);
    const auto run = shell(
        "unshare --mount /bin/bash -c 'mkdir -p /tmp/dynamiccl-0 && mount --bind " + taken +
        " /tmp/dynamiccl-0 && unset DYNAMICCL_RUN_FOLDER && DYNAMICCL_CACHE=" + program.folder() +
        "/cache exec " + program_line(program, path) + "'");
    INFO(run.err);
    CHECK(run.exit_code == 0);
    CHECK(fs::is_empty(taken));
  }
  CHECK(program.value(kOkLaunches) == 2);
}

TEST_CASE("folders of launches without a row go with the next command", "[safety]") {
  const Program program;
  const auto path = program.file("x.toml", experiment(quick(1)));
  REQUIRE(program.run({"run", path}).exit_code == 0);
  const fs::path run =
      program.folder() + "/runs/" + program.value("SELECT uuid FROM run").get<std::string>();
  const std::string rowless = "5e1f0000-0000-4000-8000-000000000001";
  const std::string kept = "5e1f0000-0000-4000-8000-000000000002";
  const fs::path others = run.parent_path() / "5e1f0000-0000-4000-8000-000000000003" / rowless;
  fs::create_directories(others);
  for (const std::string verb : {"run", "clean"}) {
    INFO(verb);
    // As of a kill between the folder and the row; the second one tells that nothing else is left.
    for (const std::string& launch : {rowless, kept}) {
      fs::create_directories(run / launch);
      std::ofstream(run / launch / "rank0.jsonl") << "{}\n";
    }
    std::ofstream(run / kept / "not-stored") << "\n";
    const auto next =
        verb == "run" ? program.run({"run", path}) : program.run({"clean", "--db", program.db()});
    INFO(next.err);
    CHECK(next.exit_code == 0);
    CHECK_FALSE(fs::exists(run / rowless));
    CHECK(fs::exists(run / kept / "rank0.jsonl"));
    CHECK(fs::exists(others));
  }
}

TEST_CASE("secrets of a command line are not stored", "[safety]") {
  const Program program;
  const auto path = program.file("x.toml", experiment(quick(1)));
  const auto result =
      shell("NCCL_token=hush1 UCX_PW=hush2 OMPI_MCA_my_PWD=hush3 UCX_URL=https://me:hush4@host/ " +
            program_line(program, path));
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  const auto stored = program.rows(
      "SELECT r.argv_json || l.argv_json || l.environment_json || coalesce((SELECT "
      "group_concat(facts_json) FROM launch_rank), '') AS text FROM run r, launch l");
  for (const auto& row : stored)
    CHECK_THAT(row["text"].get<std::string>(), !ContainsSubstring("hush"));
  // What is stored as the user wrote it takes none.
  for (const std::string key : {"name", "description"}) {
    const auto refused =
        shell(program_line(program, path) + " --set '" + key + "=\"https://me:hush5@host/x\"'");
    CHECK(refused.exit_code == 2);
    CHECK_THAT(refused.err, ContainsSubstring("a run's " + key + " is stored and shown as it is"));
  }
}
