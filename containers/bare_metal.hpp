#pragma once

#include <memory>

#include "containers/environment.hpp"

namespace dynamiccl {

std::unique_ptr<Environment> start_bare_metal(const EnvironmentProfile& profile,
                                              const StartRequest& request);
LaunchShape bare_metal_planned_shape(const StartRequest& request);
std::vector<std::string> bare_metal_planned_rank(const EnvironmentProfile& profile,
                                                 const StartRequest& request, int rank,
                                                 const std::vector<std::string>& command,
                                                 const std::map<std::string, std::string>& env);

}  // namespace dynamiccl
