#pragma once

#include <memory>
#include <optional>

#include "containers/cluster/cluster_session.hpp"
#include "containers/environment.hpp"

namespace dynamiccl {

/// Why ranks of this profile cannot be put on a cluster's nodes, with the command that a cluster with
/// what is missing would be given; nullopt when they can.
std::optional<std::string> cluster_unavailable_reason(const EnvironmentProfile& profile,
                                                      const ClusterOptions& options);

/// Hosts, prefixes and options of the launchers for ranks on nodes. Pure.
/// @param name of the environment
/// @param rank_prefix before the worker's argv on every node
LaunchShape cluster_shape(const ClusterOptions& options, const std::vector<ClusterNode>& placed,
                          const std::string& job, const std::string& name,
                          const std::vector<std::string>& rank_prefix);

std::unique_ptr<Environment> start_on_cluster(const EnvironmentProfile& profile,
                                              const StartRequest& request);
std::vector<std::vector<std::string>> cluster_start_commands(const StartRequest& request);
LaunchShape cluster_planned_shape(const EnvironmentProfile& profile, const StartRequest& request);
std::vector<std::string> cluster_planned_rank(const EnvironmentProfile& profile,
                                              const StartRequest& request, int rank,
                                              const std::vector<std::string>& command,
                                              const std::map<std::string, std::string>& env);

}  // namespace dynamiccl
