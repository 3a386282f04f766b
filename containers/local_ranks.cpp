#include "containers/local_ranks.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>

#include "containers/owner.hpp"
#include "containers/processes.hpp"
#include "embedded/end_marked_ranks_sh.hpp"

namespace dynamiccl {
namespace {

/// Processes to end: ours by name, or anybody's of a dead owner.
std::vector<ProcessInfo> marked(const std::string& environment_name) {
  std::vector<ProcessInfo> found;
  for (ProcessInfo& process : list_processes()) {
    const std::string environment = process_variable(process.pid, kEnvironmentVariable);
    if (environment.empty()) continue;
    const bool wanted = environment_name.empty()
                            ? !owner_alive(process_variable(process.pid, kOwnerVariable))
                            : environment == environment_name;
    if (wanted) found.push_back(std::move(process));
  }
  return found;
}

}  // namespace

std::map<std::string, std::string> rank_marks(const std::string& environment_name) {
  return {{kEnvironmentVariable, environment_name}, {kOwnerVariable, owner_token()}};
}

std::vector<std::string> marked_rank_argv(const std::string& environment_name,
                                          const std::vector<std::string>& prefix,
                                          const std::vector<std::string>& command,
                                          const std::map<std::string, std::string>& env) {
  std::vector<std::string> argv{"env"};
  auto marked = rank_marks(environment_name);
  marked.insert(env.begin(), env.end());
  for (const auto& [name, value] : marked) argv.push_back(name + "=" + value);
  argv.insert(argv.end(), prefix.begin(), prefix.end());
  argv.insert(argv.end(), command.begin(), command.end());
  return argv;
}

std::string end_marked_script() { return std::string(embedded::end_marked_ranks_sh); }

std::vector<std::string> end_marked_processes(const std::string& environment_name) {
  std::vector<std::string> ended;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  for (auto left = marked(environment_name);
       !left.empty() && std::chrono::steady_clock::now() < deadline;
       left = marked(environment_name)) {
    for (const ProcessInfo& process : left)
      if (kill(process.pid, SIGKILL) == 0 && ended.size() < left.size())
        ended.push_back(fmt::format("process {} {}", process.pid, process.name));
    usleep(20000);
  }
  return ended;
}

}  // namespace dynamiccl
