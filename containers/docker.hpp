#pragma once

#include <memory>
#include <optional>
#include <string>

#include "containers/engine.hpp"
#include "containers/environment.hpp"
#include "containers/image.hpp"

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

std::vector<std::vector<std::string>> docker_start_commands(const EnvironmentProfile& profile,
                                                            const StartRequest& request);
LaunchShape docker_planned_shape(const EnvironmentProfile& profile, const StartRequest& request);
std::vector<std::string> docker_planned_rank(const EnvironmentProfile& profile,
                                             const StartRequest& request, int rank,
                                             const std::vector<std::string>& command,
                                             const std::map<std::string, std::string>& env);

/// Removes containers and networks of dead owners in this engine.
/// @returns one line per thing removed
std::vector<std::string> clean_engine(const Engine& engine);

}  // namespace dynamiccl
