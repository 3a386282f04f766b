#pragma once

#include <string>
#include <vector>

#include "db/store.hpp"
#include "orchestrator/experiment/experiment.hpp"
#include "orchestrator/launch/launch.hpp"

namespace dynamiccl {

/// What a new run stores of itself, with a fresh id.
/// @param spec_path where the experiment's text comes from
/// @param argv the command line
RunInfo new_run(const Experiment& experiment, const std::string& spec_path,
                const std::vector<std::string>& argv);

/// Where a run's launches happen on this machine.
/// @param out folder that keeps each launch's files; "" = runs_folder(), which keeps those of
/// failed launches only
/// @throws Error(input) when that folder cannot be made
LaunchSite launch_site(const std::string& db, const std::string& out);

/// Makes the folder of a database file.
/// @throws Error(input) when it cannot be made
void make_db_folder(const std::string& db);

}  // namespace dynamiccl
