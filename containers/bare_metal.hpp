#pragma once

#include <memory>

#include "containers/environment.hpp"

namespace dynamiccl {

std::unique_ptr<Environment> start_bare_metal(const EnvironmentProfile& profile,
                                              const StartRequest& request);
LaunchShape bare_metal_planned_shape(const StartRequest& request);

}  // namespace dynamiccl
