#include "tests/e2e/program.hpp"

#include <fcntl.h>
#include <pty.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "containers/command.hpp"
#include "containers/paths.hpp"
#include "containers/processes.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/launch/identity.hpp"

namespace dynamiccl {

std::string one_cell(const std::string& environments, const std::string& backend) {
  return "name = \"one-cell\"\n[axes]\nenvironment = " + environments + "\nbackend = \"" + backend +
         "\"\narchitecture = \"ring\"\nranks = 2\n"
         "[[work]]\ncollective = \"allreduce\"\nsize = \"1KiB\"\n";
}

namespace fs = std::filesystem;

namespace {

/// Of a command that a test waits for: against standing still, not against busy machines.
constexpr auto kLongestWait = std::chrono::minutes(15);

/// What stands still while a test waits: every thread, its state and where in the kernel it is.
void tell_processes() {
  const auto listed = run_command({"ps", "-eLo", "pid,ppid,lwp,stat,etimes,wchan:20,args"});
  std::fprintf(stderr, "no end in time; the processes then:\n%s\n", listed.out.c_str());
}

/// Where a program writes what it says to a file.
void tell_output(pid_t pid) {
  std::error_code gone;
  const auto path = fs::read_symlink("/proc/" + std::to_string(pid) + "/fd/1", gone);
  if (gone || !fs::is_regular_file(path, gone)) return;
  std::ifstream log(path);
  const std::string said{std::istreambuf_iterator<char>(log), {}};
  std::fprintf(stderr, "what the program had said:\n%s\n", said.c_str());
}

}  // namespace

Program::Program()
    : folder_((fs::temp_directory_path() / ("dyn-e2e-" + random_uuid())).string()),
      program_(std::getenv("DYNAMICCL_TEST_PROGRAM") != nullptr
                   ? std::getenv("DYNAMICCL_TEST_PROGRAM")
                   : DYNAMICCL_BINARY_DIR "/dynamiccl") {
  fs::create_directories(folder_);
}

Program::~Program() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::vector<std::string> Program::argv(std::vector<std::string> arguments) const {
  const std::string verb = arguments.front();
  arguments.insert(arguments.begin(), program_);
  // Behind the verb: a command of its own may follow.
  if (verb != "clean") arguments.insert(arguments.begin() + 2, {"--db", db()});
  arguments.insert(arguments.begin(), prefix_.begin(), prefix_.end());
  return arguments;
}

Program::Result Program::run(std::vector<std::string> arguments) const {
  CommandOptions options;
  // Looked at before it is ended.
  static std::chrono::steady_clock::time_point deadline;
  deadline = std::chrono::steady_clock::now() + kLongestWait;
  options.timeout = 2 * kLongestWait;
  options.interrupted = [] {
    const bool late = std::chrono::steady_clock::now() > deadline;
    if (late) tell_processes();
    return late;
  };
  auto words = argv(std::move(arguments));
  // A killed test takes the program along, and with it ranks that spin.
  if (!find_program("setpriv").empty())
    words.insert(words.begin(), {"setpriv", "--pdeathsig", "TERM"});
  const auto result = run_command(words, options);
  return {result.exit_code, result.out, result.err};
}

nlohmann::json Program::rows(const std::string& sql) const {
  return nlohmann::json::parse(run({"query", sql, "--json"}).out);
}

nlohmann::json Program::value(const std::string& sql) const {
  return rows(sql).at(0).begin().value();
}

pid_t Program::start(std::vector<std::string> arguments) const {
  auto words = argv(std::move(arguments));
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const std::string log = folder_ + "/program.log";
  const pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    execvp(pointers.front(), pointers.data());
    _exit(127);
  }
  return pid;
}

pid_t Program::start_in_terminal(std::vector<std::string> arguments, int& terminal) const {
  auto words = argv(std::move(arguments));
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    execvp(pointers.front(), pointers.data());
    _exit(127);
  }
  fcntl(terminal, F_SETFD, FD_CLOEXEC);
  return pid;
}

int Program::wait(pid_t pid) {
  int status = 0;
  const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
  pid_t ended = 0;
  while ((ended = waitpid(pid, &status, WNOHANG)) == 0 &&
         std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  if (ended == 0) {
    tell_processes();
    tell_output(pid);
    kill(pid, SIGTERM);
    std::this_thread::sleep_for(std::chrono::seconds(20));
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return -1;
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool Program::has_ended(pid_t pid) {
  siginfo_t end = {};
  return waitid(P_PID, static_cast<id_t>(pid), &end, WEXITED | WNOHANG | WNOWAIT) != 0 ||
         end.si_pid == pid;
}

std::string Program::said() const {
  std::ifstream file(folder_ + "/program.log");
  return {std::istreambuf_iterator<char>(file), {}};
}

bool Program::wait_until(const std::string& sql, int least) const {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(180);
  while (std::chrono::steady_clock::now() < deadline) {
    if (fs::exists(db())) {
      const auto result = run({"query", sql, "--json"});
      if (result.exit_code == 0 &&
          nlohmann::json::parse(result.out).at(0).begin().value().get<int>() >= least)
        return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

std::string Program::use_copy() {
  const fs::path build = fs::path(folder_) / "build";
  fs::create_directories(build);
  fs::copy_file(program_, build / "dynamiccl");
  // Without it the copy would take itself for an installed program and find no profiles.
  fs::copy_file(program_ + ".source-tree", build / "dynamiccl.source-tree");
  program_ = (build / "dynamiccl").string();
  return build.string();
}

void Program::replace_worker(const std::string& name, const std::string& file) {
  // Workers are looked for beside the program.
  fs::copy_file(file, use_copy() + "/" + name);
}

void Program::hold_launches(int after) {
  const fs::path workers = fs::path(program_).parent_path();
  const fs::path copy = use_copy();
  // Containers see the copy's folder and that of the run, and nothing else.
  fs::create_directories(copy / "real");
  for (const std::string name :
       {"dynamiccl-worker", "dynamiccl-worker-openmpi", "dynamiccl-worker-mpich"}) {
    if (!fs::exists(workers / name)) continue;
    fs::copy_file(workers / name, copy / "real" / name);
    // A launch's ranks are told the same run.json, in a folder of the launch's name.
    std::ofstream(copy / name) << "#!/bin/sh\nlaunch=$(dirname \"$1\")\n"
                               << "begun=$(dirname \"$launch\")/begun\nmkdir -p \"$begun\"\n"
                               << ": >\"$begun/$(basename \"$launch\")\"\n"
                               << "while [ ! -e \"" << (copy / "go").string()
                               << "\" ] && [ $(cd \"$begun\" && ls | wc -l) -gt " << after
                               << " ]; do sleep 0.05; done\nexec \""
                               << (copy / "real" / name).string() << "\" \"$@\"\n";
    fs::permissions(copy / name, fs::perms::owner_all);
  }
}

void Program::let_go() const {
  static_cast<void>(std::ofstream(fs::path(program_).parent_path() / "go"));
}

std::string Program::file(const std::string& name, const std::string& text) const {
  const std::string path = folder_ + "/" + name;
  std::ofstream(path) << text;
  return path;
}

std::vector<std::string> Program::processes() const {
  std::vector<std::string> found;
  for (const auto& process : list_processes()) {
    const std::string line = join(process.argv, " ");
    if (line.find(folder_) != std::string::npos) found.push_back(line);
  }
  return found;
}

}  // namespace dynamiccl
