#pragma once

#include <string>
#include <vector>

#include "orchestrator/doctor/symptoms.hpp"
#include "orchestrator/launch/launch.hpp"
#include "orchestrator/plan/plan.hpp"

namespace dynamiccl {

/// Transport that profile and settings let one expect for large messages of a backend whose data
/// lie in host memory: "cma", "shm" or "tcp".
/// @param settings environment variables and Open MPI parameters together
/// @param many_hosts the launcher takes the containers for hosts of their own
std::string asked_transport(const EnvironmentProfile& profile, Backend backend,
                            const std::map<std::string, std::string>& settings, bool many_hosts);

/// The same for any backend: of GPU memory what predict_gpu_path() foretells ("p2p", "shm", "net"),
/// "" where nothing can be said.
/// @param machine facts of the machine
std::string asked_transport(const EnvironmentProfile& profile, Backend backend,
                            const std::map<std::string, std::string>& settings, bool many_hosts,
                            const nlohmann::json& machine, int ranks);

/// Starts the environment, runs dynamiccl-probe as each rank and a short launch of each backend in
/// it, and stops it again. Never throws for what the environment does: that is what is looked for.
/// @param can inspect_machine() of this profile
Symptoms examine(const EnvironmentProfile& profile, int ranks, const std::vector<Backend>& backends,
                 const LaunchSite& site, const Capabilities& can);

}  // namespace dynamiccl
