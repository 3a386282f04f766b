#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "db/reader.hpp"

namespace dynamiccl {

/// How far apart ranks are, 1 to 4 as link_tier() has it, by group_key(), of the newest good launch
/// of each group; nullopt: not known.
/// @param run row key
std::map<std::string, std::optional<int>> tiers_of_groups(const Reader& reader, std::int64_t run);

/// The farthest tier of an environment's groups; those that are not known are left out.
std::map<std::string, int> tiers_of_environments(const Reader& reader, std::int64_t run);

}  // namespace dynamiccl
