#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "db/reader.hpp"

namespace dynamiccl {

/// Where a group's ranks were.
struct GroupTier {
  std::optional<int> tier;  ///< 1 to 4 as link_tier() has them; nullopt: not known
  std::string link;         ///< what the farthest pair is joined by: "shm", "tcp virtual"
};

/// By group_key(), of the newest good launch of each group.
/// @param run row key
std::map<std::string, GroupTier> tiers_of_groups(const Reader& reader, std::int64_t run);

/// The farthest tier of an environment's groups; those that are not known are left out.
std::map<std::string, int> tiers_of_environments(const Reader& reader, std::int64_t run);

}  // namespace dynamiccl
