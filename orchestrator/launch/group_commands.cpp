#include "orchestrator/launch/group_commands.hpp"

#include <fmt/format.h>

#include "containers/start/environment.hpp"
#include "core/vocabulary/error.hpp"

namespace dynamiccl {
namespace {

constexpr const char* kRunId = "RUN";
constexpr const char* kLaunchId = "LAUNCH";

}  // namespace

GroupCommands commands_of(const PlannedGroup& group, const EnvironmentProfile& profile,
                          const LaunchSite& site) {
  GroupCommands commands;
  // Of simulated ranks there is no launcher's command, but a script that each launch writes.
  if (group.possible_cells() == 0 || profile.simulated()) return commands;
  const StartRequest request{
      kRunId, group.ranks, {site.run_folder}, site.cluster, {site.worker_folder}};
  try {
    const EnvironmentPlan planned = plan_environment(profile, request);
    commands.environment = planned.commands();
    const auto run_json = fmt::format("{}/{}/{}/run.json", site.run_folder, kRunId, kLaunchId);
    const auto made = make_commands(group, profile, planned.shape, site, run_json,
                                    [&](int rank, const std::vector<std::string>& command,
                                        const std::map<std::string, std::string>& env) {
                                      return planned.rank_command(rank, command, env);
                                    });
    for (const auto& command : made) commands.launch.push_back(command.argv);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::bug) throw;
    commands.problem = error.what();
    commands.never = error.kind() == ErrorKind::input;
  }
  return commands;
}

void rule_out_groups_without_commands(Plan& plan, const Experiment& experiment,
                                      std::shared_ptr<ClusterSession> cluster) {
  // No folder is known yet; that one is missing is no fault of the profile.
  LaunchSite anywhere;
  anywhere.worker_folder = "/PROGRAMS";
  anywhere.run_folder = "/RUNS";
  anywhere.cluster = std::move(cluster);
  for (auto& group : plan.groups) {
    const auto commands = commands_of(group, experiment.profiles.at(group.environment), anywhere);
    if (!commands.never) continue;
    for (auto& cell : group.cells)
      if (cell.impossible.empty()) cell.impossible = commands.problem;
  }
}

}  // namespace dynamiccl
