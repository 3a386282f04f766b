#include "containers/environment_plan.hpp"

#include <fmt/format.h>

#include "containers/command.hpp"
#include "core/vocabulary/error.hpp"

namespace dynamiccl {

std::vector<PlannedMount> planned_mounts(const std::vector<std::string>& host_folders,
                                         const std::string& run_folder,
                                         const StartRequest& request) {
  std::vector<PlannedMount> mounts;
  for (const std::string& folder : host_folders) mounts.push_back({folder, true});
  for (const std::string& folder : request.programs) mounts.push_back({folder, true});
  if (!run_folder.empty()) mounts.push_back({run_folder, false});
  for (const std::string& folder : request.binds) mounts.push_back({folder, false});
  return mounts;
}

std::vector<std::vector<std::string>> EnvironmentPlan::commands() const {
  std::vector<std::vector<std::string>> result;
  if (!allocate.empty()) result.push_back(allocate);
  if (!network.create.empty()) result.push_back(network.create);
  for (const PlannedContainer& container : containers) result.push_back(container.run_argv);
  return result;
}

std::vector<std::string> EnvironmentPlan::rank_command(
    int rank, const std::vector<std::string>& command,
    const std::map<std::string, std::string>& env) const {
  int first = 0;
  for (const RankStart& start : starts) {
    if (rank >= first && rank < first + start.ranks) {
      std::vector<std::string> argv;
      if (start.by_shell) argv = start.inner;
      auto variables = start.marks;
      variables.insert(env.begin(), env.end());
      for (const auto& [variable, value] : variables) {
        if (!start.flag.empty()) argv.push_back(start.flag);
        argv.push_back(variable + "=" + value);
      }
      argv.insert(argv.end(), start.after.begin(), start.after.end());
      argv.insert(argv.end(), command.begin(), command.end());
      if (start.by_shell) argv = {command_line(argv)};
      argv.insert(argv.begin(), start.before.begin(), start.before.end());
      return argv;
    }
    first += start.ranks;
  }
  throw Error(ErrorKind::bug, fmt::format("rank {} of {} planned ranks", rank, first));
}

}  // namespace dynamiccl
