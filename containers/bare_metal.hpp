#pragma once

#include <memory>

#include "containers/running_environment.hpp"

namespace dynamiccl {

/// The plan is plan_local_ranks() without a prefix.
std::unique_ptr<Environment> start_bare_metal(const StartRequest& request);

}  // namespace dynamiccl
