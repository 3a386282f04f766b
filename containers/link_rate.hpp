#pragma once

#include <string>
#include <vector>

#include "containers/engine.hpp"

namespace dynamiccl {

/// The tc command that caps an interface with a token bucket; the bucket holds 2 ms of the rate, at
/// least 256 KiB.
std::vector<std::string> link_limit_argv(const std::string& interface, double bits_per_s);

/// Caps both directions of the container's link, as a network port does: what goes to it on the
/// host's side, what it sends on its eth0. Goes away with the container.
/// @throws Error(environment)
void limit_link(const Engine& engine, const std::string& container, double bits_per_s);

}  // namespace dynamiccl
