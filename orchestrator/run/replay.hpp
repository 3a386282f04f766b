#pragma once

#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "db/reader.hpp"
#include "orchestrator/launch/launch.hpp"
#include "reports/model/leaf_difference.hpp"

namespace dynamiccl {

/// A launch with all that was recorded of how it was made.
struct StoredLaunch {
  std::string uuid;
  std::string run_id;
  int block = 0;
  Experiment experiment;  ///< name, seed, text, the launch's profile and protocol; no axes
  Plan plan;              ///< its group with the cells that it measured, in their order
  RunConfig config;
  std::vector<std::string> argv;
  std::string tool_version;
  std::string regime;
  MachineDeclarations machine;  ///< what its regime names as declared; places of nodes are not kept
  nlohmann::json host;
  nlohmann::json variables;
  nlohmann::json container;
  nlohmann::json libraries;  ///< loaded by rank 0, with paths and build ids

  [[nodiscard]] const PlannedGroup& group() const { return plan.groups.front(); }
  [[nodiscard]] const EnvironmentProfile& profile() const {
    return experiment.profiles.at(group().environment);
  }
};

/// @param name beginning of a launch's id, or a run as Reader::resolve_run takes it: its newest
/// launch that ended well
/// @throws Error(input) when there is none, Error(data) when it was not recorded well enough
StoredLaunch load_launch(const Reader& reader, const std::string& name);

/// A difference between then and now, by the part of the surroundings it belongs to.
struct SurroundingDifference {
  std::string
      part;  ///< "program", "host", "profile", "variable", "container", "library", "command"
  LeafDifference leaf;  ///< a = then, b = now
};

/// What differs now. Starts the environment to look at its image and the commands in it, and stops
/// it again; starts no rank.
/// @param profiles the profiles as they are now
/// @throws Error(environment) when the environment cannot start here
std::vector<SurroundingDifference> differences_now(
    const StoredLaunch& launch, const LaunchSite& site,
    const std::map<std::string, EnvironmentProfile>& profiles);

/// Runs of words that only one of two commands has, the shortest such list; those at one place
/// stand side by side, "-" where one has none there.
std::vector<LeafDifference> command_differences(const std::vector<std::string>& then,
                                                const std::vector<std::string>& now);

/// Gives this process the recorded variables of then, for all that it starts: sets those that
/// differ, unsets those that were not there. Redacted ones stay as they are, as do those that no
/// run records, whatever a database says of them.
void restore_variables(const StoredLaunch& launch,
                       const std::vector<SurroundingDifference>& differences);

/// What the ranks of two launches said of their libraries and regime.
std::vector<SurroundingDifference> differences_seen_by_ranks(const StoredLaunch& then,
                                                             const StoredLaunch& now);

}  // namespace dynamiccl
