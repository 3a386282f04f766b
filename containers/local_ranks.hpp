#pragma once

#include <map>
#include <string>
#include <vector>

#include "containers/environment_plan.hpp"

namespace dynamiccl {

/// Processes of this machine that belong to an environment carry these variables, so that they can
/// be found whatever process group or session a launcher has put them into.
inline constexpr const char* kEnvironmentVariable = "DYNAMICCL_ENVIRONMENT";
inline constexpr const char* kOwnerVariable = "DYNAMICCL_OWNER";

/// Both variables. No owner: it is on another machine, so that nobody here may say that it is dead.
std::map<std::string, std::string> rank_marks(const std::string& environment_name,
                                              const std::string& owner);

/// The plan of an environment whose ranks are processes of this machine, behind `prefix` where they
/// start without a launcher. Pure.
/// @param folder,owner RunFolder::path_of() the name and owner_token()
EnvironmentPlan plan_local_ranks(const StartRequest& request, const std::string& name,
                                 const std::string& folder, const std::string& owner,
                                 const std::vector<std::string>& prefix);

/// Kills marked processes (of one environment, or "" for those of dead owners, also by their limit
/// mark), waits until they are gone. @returns one line per process
std::vector<std::string> end_marked_processes(const std::string& environment_name);

/// The same of one environment, whose holders stay.
void end_local_ranks(const std::string& environment_name);

}  // namespace dynamiccl
