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

/// Large enough that every library takes its way for large messages.
inline constexpr Bytes kLookSize{std::uint64_t{4} << 20};

/// What the short launch of a backend does.
struct LookPlan {
  std::vector<Bytes> sizes{kLookSize};  ///< of its all-reduces; the first is a large one
  int iterations = 3;
  bool pages = true;  ///< a second launch counts the page faults of larger calls
};

/// Starts the environment, runs dynamiccl-probe as each rank and a short launch of each backend in
/// it, and stops it again. Never throws for what the environment does: that is what is looked for.
/// @param can inspect_machine() of this profile
Symptoms examine(const EnvironmentProfile& profile, int ranks, const std::vector<Backend>& backends,
                 const LaunchSite& site, const Capabilities& can, const LookPlan& plan = {});

}  // namespace dynamiccl
