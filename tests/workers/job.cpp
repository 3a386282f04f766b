#include "tests/workers/job.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

namespace dynamiccl::testing {

namespace {

/// Ranks meet by files: no launcher starts them.
bool starts_alone(Backend backend) { return backend == Backend::gloo || backend == Backend::nccl; }

}  // namespace

Job::Job(Backend backend, int ranks) {
  std::string folder = (std::filesystem::temp_directory_path() / "job-XXXXXX").string();
  config.output_dir = mkdtemp(folder.data());
  config.rendezvous_dir = starts_alone(backend) ? config.output_dir + "/meet" : "";
  config.launch_id = "job";
  config.backend = backend;
  config.ranks = ranks;
  config.seed = 42;
  config.protocol.warmup = 2;
  config.protocol.iterations = 5;
}

Job::~Job() {
  wait(0);
  std::filesystem::remove_all(config.output_dir);
}

std::string Job::worker() const {
  std::string name = trains ? "dynamiccl-trainer" : "dynamiccl-worker";
  if (!starts_alone(config.backend)) name += fmt::format("-{}", name_of(config.backend));
  const std::string folder = DYNAMICCL_BINARY_DIR;
  return faulty ? folder + "/tests/" + name + "-faulty" : folder + "/" + name;
}

void Job::start() {
  std::ofstream(run_json()) << to_json(config);
  if (starts_alone(config.backend)) {
    for (int rank = 0; rank < config.ranks; ++rank) start_alone(rank);
    return;
  }
  std::vector<std::string> arguments{fmt::format("mpirun.{}", name_of(config.backend))};
  if (config.backend == Backend::openmpi)
    arguments.insert(arguments.end(), {"--allow-run-as-root", "--oversubscribe"});
  arguments.insert(arguments.end(), launcher_flags.begin(), launcher_flags.end());
  arguments.insert(arguments.end(), {"-n", std::to_string(config.ranks), worker(), run_json()});
  spawn(arguments, {});
}

void Job::start_alone(int rank) {
  // Written once: a rank may be reading it while the next one is started.
  if (!std::filesystem::exists(run_json())) std::ofstream(run_json()) << to_json(config);
  std::map<std::string, std::string> more;
  if (starts_alone(config.backend)) more["DYNAMICCL_RANK"] = std::to_string(rank);
  if (hosts_apart) more["NCCL_HOSTID"] = fmt::format("rank-{}", rank);
  spawn({worker(), run_json()}, more);
}

void Job::spawn(const std::vector<std::string>& arguments,
                const std::map<std::string, std::string>& more_environment) {
  const std::string errors_path = config.output_dir + "/stderr";
  std::vector<char*> argv;
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    setpgid(0, 0);
    // A killed test takes its ranks along, which would spin for ever.
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    const int errors_file = open(errors_path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    dup2(errors_file, 2);
    dup2(errors_file, 1);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    for (const auto& [name, value] : more_environment) setenv(name.c_str(), value.c_str(), 1);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  processes_.push_back(child);
}

int Job::wait(double timeout_s) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s);
  int worst = 0;
  while (!processes_.empty()) {
    const pid_t process = processes_.back();
    int status = 0;
    const pid_t ended = waitpid(process, &status, WNOHANG);
    if (ended == 0) {
      if (Clock::now() > deadline) {
        worst = -1;
        kill(-process, SIGKILL);
        waitpid(process, &status, 0);
        processes_.pop_back();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      continue;
    }
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (worst >= 0) worst = std::max(worst, code);
    processes_.pop_back();
  }
  return worst;
}

std::vector<Record> Job::records(int rank) const {
  const std::string path = config.output_dir + "/" + record_file_name(rank);
  if (!std::filesystem::exists(path)) return {};
  return read_record_file(path).records;
}

std::string Job::errors() const {
  std::ifstream file(config.output_dir + "/stderr");
  return {std::istreambuf_iterator<char>(file), {}};
}

HelloRecord wait_for_hello(const Job& job, int rank) {
  for (int i = 0; i < 18000; ++i) {
    const auto hello = job.records_of<HelloRecord>(rank);
    if (!hello.empty()) return hello[0];
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return {};
}

WorkCell cell_of(Collective collective, std::uint64_t size, DataType type,
                 const std::string& algorithm) {
  WorkCell cell;
  cell.id = fmt::format("{} {} {} {}", name_of(collective), size, name_of(type), algorithm);
  cell.collective = collective;
  cell.size = Bytes(size);
  cell.datatype = type;
  cell.algorithm = algorithm;
  return cell;
}

}  // namespace dynamiccl::testing
