#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "db/reader.hpp"

namespace dynamiccl {

/// Where ranks could not all have a core of their own, by environment and backend.
using Crowding = std::map<std::pair<std::string, std::string>, std::set<std::string>>;
Crowding crowding_of(const Reader& reader, const std::string& run_uuid);

/// A text of a regime, its parts or a profile; "" where it has none by that key.
std::string text_at(const nlohmann::json& object, const char* key);

struct RegimeCause {
  std::string text;
  std::string fix;  ///< at most 90 columns; "" = printed with another cause, or none
};

/// Why an environment communicates as it does, the weightiest first: what its regime says and how
/// its ranks share cores. Causes that take a look of their own (interfaces, quotas) are the
/// doctor's.
/// @param regime as launch.regime_json has it
std::vector<RegimeCause> regime_causes(const nlohmann::json& regime,
                                       const std::set<std::string>& crowding);

/// The libraries that a cause was found with, by what mends it for them; "" = nothing does.
using FixesOf = std::map<std::string, std::set<std::string>>;

struct EnvironmentCause {
  std::string environment;
  std::string text;
  FixesOf fixes;
};

/// The causes of a run's regimes by environment; without those that bare metal has, too, which
/// explain no difference.
std::vector<EnvironmentCause> environment_causes(const Reader& reader, const std::string& run_uuid,
                                                 std::int64_t run_row);

}  // namespace dynamiccl
