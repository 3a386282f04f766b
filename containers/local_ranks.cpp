#include "containers/local_ranks.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>

#include "containers/limit_mark.hpp"
#include "containers/owner.hpp"
#include "containers/processes.hpp"
#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

/// Processes to end: ours by name, or anybody's of a dead owner.
std::vector<ProcessInfo> marked(const std::string& environment_name) {
  std::vector<ProcessInfo> found;
  for (ProcessInfo& process : list_processes()) {
    const std::string environment = process_variable(process.pid, kEnvironmentVariable);
    const std::string owner =
        environment.empty() ? "" : process_variable(process.pid, kOwnerVariable);
    const bool wanted = !environment_name.empty() ? environment == environment_name
                        : environment.empty()     ? has_mark_of_the_dead(process.pid)
                                                  : !owner.empty() && !owner_alive(owner);
    if (wanted) found.push_back(std::move(process));
  }
  return found;
}

}  // namespace

std::map<std::string, std::string> rank_marks(const std::string& environment_name,
                                              const std::string& owner) {
  return {{kEnvironmentVariable, environment_name}, {kOwnerVariable, owner}};
}

EnvironmentPlan plan_local_ranks(const StartRequest& request, const std::string& name,
                                 const std::string& folder, const std::string& owner,
                                 const std::vector<std::string>& prefix) {
  EnvironmentPlan plan;
  plan.name = name;
  plan.folder = folder;
  plan.shape.hosts = {{"localhost", "", request.ranks}};
  plan.shape.host_address = "127.0.0.1";
  plan.shape.interface = "lo";
  plan.shape.launcher_environment = rank_marks(name, owner);
  // What a killed mpirun leaves of its session goes with the folder.
  plan.shape.launcher_environment["OMPI_MCA_orte_tmpdir_base"] = folder;
  plan.starts = {{request.ranks, {"env"}, "", rank_marks(name, owner), prefix}};
  return plan;
}

namespace {

/// What keeps an environment's container, and whoever started that and still waits for it.
bool is_holder(const ProcessInfo& process) {
  return (join(process.argv, " ") + " ").find("sleep infinity ") != std::string::npos;
}

std::vector<std::string> end_marked(const std::string& environment_name, bool but_holders) {
  std::vector<std::string> ended;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  // Whom no signal ends is met again when the environment stops.
  const int least_looks = but_holders ? 5 : 50;
  // A process that is made while the list is read is not in it, and the one that made it may be
  // gone: none is left when two lists in a row name none. Not by the clock alone: a list takes a
  // busy machine seconds, and who is stopped meanwhile would look at none.
  for (int none = 0, look = 0;
       none < 2 && (look < least_looks || std::chrono::steady_clock::now() < deadline); ++look) {
    auto left = marked(environment_name);
    if (but_holders) std::erase_if(left, is_holder);
    for (const ProcessInfo& process : left)
      if (kill(process.pid, SIGKILL) == 0 && ended.size() < left.size())
        ended.push_back(fmt::format("process {} {}", process.pid, process.name));
    none = left.empty() ? none + 1 : 0;
    if (!left.empty()) usleep(20000);
  }
  return ended;
}

}  // namespace

std::vector<std::string> end_marked_processes(const std::string& environment_name) {
  return end_marked(environment_name, false);
}

void end_local_ranks(const std::string& environment_name) { end_marked(environment_name, true); }

}  // namespace dynamiccl
