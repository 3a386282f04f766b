#pragma once

#include <string>
#include <vector>

namespace dynamiccl {

/// Why these words are not given to an engine's run: DynamICCL's own flags, those that a profile's
/// key gives, --privileged, and what an engine would take for an image. "" = they are.
std::string docker_args_mistake(const std::vector<std::string>& words);

}  // namespace dynamiccl
