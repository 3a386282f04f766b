#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "containers/cluster/cluster_session.hpp"
#include "containers/held_command.hpp"
#include "containers/start/environment.hpp"
#include "core/vocabulary/json.hpp"
#include "db/store.hpp"
#include "orchestrator/experiment/experiment.hpp"
#include "orchestrator/launch/cadence.hpp"
#include "orchestrator/launch/launcher.hpp"
#include "orchestrator/launch/process.hpp"
#include "orchestrator/launch/record_server.hpp"
#include "orchestrator/plan/plan.hpp"
#include "profiles/machine_declarations.hpp"

namespace dynamiccl {

/// Where launches of a run happen.
struct LaunchSite {
  std::string worker_folder;  ///< holds the worker executables; visible inside containers
  std::string run_folder;     ///< holds a folder per launch; visible inside containers
  nlohmann::json host;        ///< probe_host(): what the ranks' surroundings are compared with
  int cores = 1;
  MachineDeclarations machine = {};                   ///< of [machine]
  std::shared_ptr<ClusterSession> cluster = nullptr;  ///< the ranks' machines; nullptr = this one
  std::string db;           ///< where choices of ranks are stored; "" = nowhere
  bool keep_files = false;  ///< keep a launch's folder although it was stored
  /// Starts a launch's commands and waits for their end: here as children of this process. A batch
  /// system's way submits them and waits for its job; both leave records in the launch's folder.
  std::function<ProcessOutcome(const std::vector<Command>&, const ProcessOptions&)> start =
      run_processes;
};

/// One launch, ready to start.
struct PreparedLaunch {
  std::string folder;  ///< run.json, rank<r>.jsonl
  RunConfig config;
  std::vector<Command> commands;
  nlohmann::json noise_before;  ///< quiet_window() right before the start
  LaunchStart start;            ///< what is stored before it starts
  /// Where ranks that do not see `folder` send their records; nullptr: they see it.
  std::shared_ptr<RecordServer> records = nullptr;
  /// Sums for cells with the algorithm "aggregator" as long as this holds it; nullptr: none.
  std::shared_ptr<HeldCommand> aggregator = nullptr;
};

/// What came of a launch.
struct FinishedLaunch {
  LaunchEnd end;
  std::vector<RecordFile> records;
  std::size_t failed_cells = 0;
  int interrupted_by = 0;  ///< signal, 0 = none
};

/// Timeout of a launch: the protocol's, or what its cells may take at most by their time caps.
Micros launch_timeout(const RunProtocol& protocol, const std::vector<WorkCell>& cells);

/// After which a rank that a signal has stopped is not waited for any longer: DYNAMICCL_STOPPED_S.
/// @throws Error(input) where that is no number of seconds
Micros stopped_limit();

/// The worker's run.json for one launch of a group.
RunConfig make_run_config(const PlannedGroup& group, const RunProtocol& protocol,
                          const std::string& launch_id, std::uint64_t seed,
                          const std::string& folder, const std::string& interface);

/// The commands that start the ranks. Pure; `wrap_rank` as in LaunchRequest.
std::vector<Command> make_commands(
    const PlannedGroup& group, const EnvironmentProfile& profile, const LaunchShape& shape,
    const LaunchSite& site, const std::string& run_json,
    std::function<std::vector<std::string>(int, const std::vector<std::string>&,
                                           const std::map<std::string, std::string>&)>
        wrap_rank);

/// Makes the launch's folder with run.json and the commands.
/// @param replayed run.json of a stored launch: seed, cells, their order and their protocol are
/// taken from it, only ids and paths are new; nullptr = the group's cells in the seed's order
/// @param cadences calls per sample that are settled already; nullptr = none
/// @throws Error(environment) when the folder cannot be written
PreparedLaunch prepare_launch(const PlannedGroup& group, const EnvironmentProfile& profile,
                              const Environment& environment, const LaunchSite& site,
                              const RunProtocol& protocol, std::uint64_t seed,
                              const RunConfig* replayed = nullptr,
                              const CadenceBook* cadences = nullptr);

/// run.json of a stored launch for a new one: its ids, paths and interface.
RunConfig replayed_config(const RunConfig& stored, const std::string& launch_id,
                          const std::string& folder, const std::string& interface);

/// The command of a launch as it is recorded: several ranks' joined by "&", secrets hidden.
std::vector<std::string> recorded_argv(const std::vector<Command>& commands);

/// Called while the ranks run; each may be empty.
struct LaunchListeners {
  std::function<void(const std::string&)> on_stderr;
  std::function<void()> on_look;  ///< ProcessOptions::on_look
};

/// Starts the ranks, waits, reads their records and checks them against plan and profile. A launch
/// that fails is a value, not an exception.
FinishedLaunch run_launch(const PreparedLaunch& launch, const EnvironmentProfile& profile,
                          const Environment& environment, const LaunchSite& site,
                          const RunProtocol& protocol, const LaunchListeners& listeners);

/// Removes the launch's folder.
void remove_launch_folder(const PreparedLaunch& launch);

}  // namespace dynamiccl
