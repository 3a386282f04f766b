#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "containers/progress.hpp"
#include "containers/running_environment.hpp"
#include "profiles/profile.hpp"

namespace dynamiccl {

/// Why a profile cannot run here, e.g. "no container engine: apt-get install docker.io"; nullopt
/// when it can. Never installs anything; may look at the machine (sockets, binaries).
std::optional<std::string> unavailable_reason(const EnvironmentProfile& profile);

/// Makes what the profile needs once per machine: private engine where none runs, worker image.
/// Idempotent, quick when done before.
/// @throws UnsupportedError with the reason when the profile cannot run here, Error(environment)
/// when it could but did not come up or was interrupted; both name the exact command that would
/// fix it
void prepare(const EnvironmentProfile& profile, const Progress& progress);

/// @throws Error(environment) when a container cannot start; whatever was started is removed first
std::unique_ptr<Environment> start_environment(const EnvironmentProfile& profile,
                                               const StartRequest& request);

/// What start_environment would start: exact argv, folders, networks, shape; nothing is started.
/// @throws Error(input) when the profile asks for what no engine can do
EnvironmentPlan plan_environment(const EnvironmentProfile& profile, const StartRequest& request);

/// Removes containers, networks, mounts and private engines left by runs that are no longer alive.
/// @returns one line per thing removed
std::vector<std::string> clean_leftovers();

}  // namespace dynamiccl
