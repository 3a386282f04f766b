#pragma once

#include <string>
#include <vector>

#include "orchestrator/experiment/experiment.hpp"
#include "orchestrator/launch/launch.hpp"
#include "orchestrator/plan/plan.hpp"

namespace dynamiccl {

/// What would be started for a group, with RUN and LAUNCH for the ids.
struct GroupCommands {
  std::vector<std::vector<std::string>> environment;  ///< argv, once per block
  std::vector<std::vector<std::string>> launch;       ///< argv, per launch
  std::string problem;                                ///< why they are not known, "" = they are
  bool never = false;                                 ///< no machine could: the profile forbids it
};

GroupCommands commands_of(const PlannedGroup& group, const EnvironmentProfile& profile,
                          const LaunchSite& site);

/// Makes the cells of groups impossible whose profile leaves no command to start them with.
void rule_out_groups_without_commands(Plan& plan, const Experiment& experiment,
                                      std::shared_ptr<ClusterSession> cluster = nullptr);

}  // namespace dynamiccl
