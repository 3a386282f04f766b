#pragma once

#include <map>
#include <string>
#include <vector>

namespace dynamiccl {

/// Processes of this machine that belong to an environment carry these variables, so that they can
/// be found whatever process group or session a launcher has put them into.
inline constexpr const char* kEnvironmentVariable = "DYNAMICCL_ENVIRONMENT";
inline constexpr const char* kOwnerVariable = "DYNAMICCL_OWNER";

/// Both variables for an environment of this process.
std::map<std::string, std::string> rank_marks(const std::string& environment_name);

/// argv that runs a command behind `prefix` with the environment's marks and `env` set.
std::vector<std::string> marked_rank_argv(const std::string& environment_name,
                                          const std::vector<std::string>& prefix,
                                          const std::vector<std::string>& command,
                                          const std::map<std::string, std::string>& env);

/// Text of a script that kills every process marked with the environment in its first argument,
/// except the container's holder.
std::string end_marked_script();

/// Kills marked processes (of one environment, or "" for those of dead owners), waits until they
/// are gone. @returns one line per process
std::vector<std::string> end_marked_processes(const std::string& environment_name);

}  // namespace dynamiccl
