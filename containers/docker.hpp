#pragma once

#include <memory>
#include <optional>
#include <string>

#include "containers/engine.hpp"
#include "containers/progress.hpp"
#include "containers/running_environment.hpp"
#include "profiles/profile.hpp"

namespace dynamiccl {

/// Why this profile cannot run in Docker or Podman here.
std::optional<std::string> docker_unavailable_reason(const EnvironmentProfile& profile);

void prepare_docker(const Progress& progress);

std::unique_ptr<Environment> start_docker(const EnvironmentProfile& profile,
                                          const StartRequest& request);

/// The same in an engine of the caller's choice, which must answer and have the image.
std::unique_ptr<Environment> start_docker_in(const Engine& engine,
                                             const EnvironmentProfile& profile,
                                             const StartRequest& request);

/// What start_docker() would start under this name; with Docker's own words where no engine is
/// installed yet.
EnvironmentPlan docker_plan_here(const EnvironmentProfile& profile, const StartRequest& request,
                                 const std::string& name);

/// Removes containers and networks of dead owners in this engine.
/// @returns one line per thing removed
std::vector<std::string> clean_engine(const Engine& engine);

}  // namespace dynamiccl
