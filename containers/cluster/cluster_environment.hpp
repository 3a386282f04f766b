#pragma once

#include <memory>
#include <optional>
#include <string>

#include "containers/cluster/cluster_session.hpp"
#include "containers/running_environment.hpp"
#include "profiles/profile.hpp"

namespace dynamiccl {

/// Why ranks of this profile cannot be put on a cluster's nodes, with the command that a cluster
/// with what is missing would be given; nullopt when they can.
std::optional<std::string> cluster_unavailable_reason(const EnvironmentProfile& profile,
                                                      const ClusterSession& session);

/// How the launchers learn of ranks on these nodes. Pure.
/// @param job of Slurm
/// @param name of the environment
/// @param rank_prefix before the worker's argv on every node
LaunchShape cluster_shape(const ClusterOptions& options, const std::vector<ClusterNode>& placed,
                          const std::string& job, const std::string& name,
                          const std::vector<std::string>& rank_prefix);

/// Ranks on the nodes of request.cluster, as far as those are known: before there is an allocation
/// they are NODE1, NODE2 of Slurm job JOB.
/// @throws Error(input) when the nodes take fewer ranks
EnvironmentPlan plan_cluster(const EnvironmentProfile& profile, const StartRequest& request,
                             const std::string& name);

std::unique_ptr<Environment> start_on_cluster(const EnvironmentProfile& profile,
                                              const StartRequest& request);

}  // namespace dynamiccl
