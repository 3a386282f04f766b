#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "profiles/detect/regime_context.hpp"

namespace dynamiccl {

/// What was detected, in the few words that decide how communication behaves. Ranks, nodes and
/// architecture are no part of it, exact versions neither.
struct Regime {
  std::string id;    ///< stable_id of the ingredients: equal regimes have equal ids
  std::string name;  ///< "cross-docker / apart: net ipc uts pid / no shared link / tcp eth-virtual
                     ///< / no GPU / openmpi-4.1"
  /// {"ingredients": {...}, "evidence": {...}, "features": {...}, "pairs": {...}, "declared":
  /// {...}}: features are the static state of the tuner, null where not known; pairs as to_json()
  /// of pair_places() has them; what is declared of topology and deployment, where anything is. The
  /// id is of the ingredients alone.
  nlohmann::json json;
};

/// @param facts_of_ranks FactsRecord::facts, one per rank, in any order; what a damaged one lacks
/// becomes "unknown"
Regime derive_regime(const std::vector<nlohmann::json>& facts_of_ranks,
                     const RegimeContext& context);

/// Names of the ingredients, the most telling first: how near two regimes are is counted in these.
const std::vector<std::string>& regime_ingredients();

struct RegimeMatch {
  std::size_t index = 0;  ///< into `known`
  bool exact = false;
  std::vector<std::string> differing;  ///< ingredients that differ, the most telling first
  std::string text;  ///< "exact", or "nearest: differs in inter_tier (10GbE, wanted 100GbE)"
};

/// The known regime equal to `wanted`, else the one that differs in the fewest ingredients (among
/// equals in the less telling ones); nullopt when nothing is known. Both take Regime::json.
std::optional<RegimeMatch> match_regime(const nlohmann::json& wanted,
                                        const std::vector<nlohmann::json>& known);

}  // namespace dynamiccl
