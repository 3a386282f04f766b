#pragma once

#include <map>
#include <set>
#include <string>

#include "orchestrator/plan/plan.hpp"

namespace dynamiccl {

/// Looks at this machine and this build, starts nothing: which backends are built and can run,
/// which profiles have what they need, how much memory there is.
/// @param worker_folder where the worker executables lie
Capabilities inspect_machine(const std::map<std::string, EnvironmentProfile>& profiles,
                             const std::string& worker_folder);

/// Why asking for huge pages changes nothing on this machine; "" = it does.
std::string no_huge_pages_reason();

/// NVIDIA GPUs the driver shows.
int gpu_count();

}  // namespace dynamiccl
