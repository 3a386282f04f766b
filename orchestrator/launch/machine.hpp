#pragma once

#include <map>
#include <set>
#include <string>

#include "containers/cluster/cluster_session.hpp"
#include "orchestrator/plan/plan.hpp"

namespace dynamiccl {

/// Looks at this machine and this build, starts nothing: which backends are built and can run,
/// which profiles have what they need, how much memory there is.
/// @param worker_folder where the worker executables lie
Capabilities inspect_machine(const std::map<std::string, EnvironmentProfile>& profiles,
                             const std::string& worker_folder);

/// @param gpus what is known of them otherwise
Capabilities inspect_machine(const std::map<std::string, EnvironmentProfile>& profiles,
                             const std::string& worker_folder, int gpus);

/// The same of a cluster's nodes, as far as this machine knows of them without asking any.
Capabilities inspect_cluster(const std::map<std::string, EnvironmentProfile>& profiles,
                             const std::string& worker_folder, const ClusterSession& cluster);

/// The nodes an experiment names, or Slurm's; nullptr when all ranks run on this machine.
/// @throws Error(input) when nobody says how many nodes
std::shared_ptr<ClusterSession> cluster_session(const Experiment& experiment);

/// Why asking for huge pages changes nothing on this machine; "" = it does.
std::string no_huge_pages_reason();

/// NVIDIA GPUs the driver shows.
int gpu_count();

}  // namespace dynamiccl
