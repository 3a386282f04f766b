#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"

namespace dynamiccl {

/// What a link can carry in one direction, as far as the machine says it itself.
struct LinkRate {
  double bytes_per_s = 0;
  std::string source;  ///< "18 NVLinks of a GPU", "link tier 100GbE"
};

/// Inside a node, from the regime's `intra_link`: all NVLinks of a GPU, or its PCIe lanes where
/// they run at what the card can do (an idle link shows a lower generation, and then nobody knows).
/// The least of the GPUs. nullopt for shared memory and whatever else has no stated rate.
/// @param facts_of_ranks FactsRecord::facts
std::optional<LinkRate> intra_rate(const std::vector<nlohmann::json>& facts_of_ranks,
                                   const std::string& intra_link);

/// Between nodes or containers, from the regime's `inter_tier`: "100GbE", "400Gb/s",
/// "shaped-300Mbit/s". nullopt for "virtual", "unknown" and what is no rate.
std::optional<LinkRate> inter_rate(const std::string& inter_tier);

/// the interconnect is flat where links inside a node are at most this many times as fast as
/// those that leave it (PCIe 3.0 x16 against 100 Gb/s: 1.26), so that a hierarchy gains nothing.
inline constexpr double kFlatBelow = 1.5;

/// Rate inside over rate between nodes; nullopt where one of them is not known.
std::optional<double> intra_over_inter(const std::optional<LinkRate>& intra,
                                       const std::optional<LinkRate>& inter);
/// "flat", "steep" or "unknown"; an interconnect that is faster outside is flat too.
std::string interconnect_shape(const std::optional<double>& intra_over_inter);

}  // namespace dynamiccl
