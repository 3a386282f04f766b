#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dynamiccl::fuzz {

/// Sound inputs of a target whose form is this build's memory (regions, packets, frames) and would
/// go stale as files; none for targets with a kept corpus.
std::vector<std::string> made_seeds(std::string_view target);

}  // namespace dynamiccl::fuzz
