#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "profiles/detect/node_places.hpp"

namespace dynamiccl {

/// The smallest thing that two ranks share, the nearest first.
enum class PairPlace { die, socket, node, leaf_switch, rack, zone, apart, network };
template <>
struct NameTable<PairPlace> {
  static constexpr std::string_view what = "place that a pair of ranks shares";
  static constexpr std::array entries{
      Named{PairPlace::die, "die"},        Named{PairPlace::socket, "socket"},
      Named{PairPlace::node, "node"},      Named{PairPlace::leaf_switch, "switch"},
      Named{PairPlace::rack, "rack"},      Named{PairPlace::zone, "zone"},
      Named{PairPlace::apart, "apart"},       ///< in different zones
      Named{PairPlace::network, "network"}};  ///< on different nodes, and nothing is known further
};

/// One rank and where it is. An unbound rank is on no die and no socket of a node that has several.
struct RankPlace {
  std::string node;  ///< what tells machines apart: its name, or its boot id
  nlohmann::json facts;
};

struct PairPlaces {
  std::map<PairPlace, double> mix;  ///< share of the pairs at each place, sum 1; empty: no pair
  std::string how;                  ///< "CPUs the ranks may use; nodes: declared"
  [[nodiscard]] PairPlace worst() const { return mix.rbegin()->first; }
};

/// Places of all pairs of ranks. Die and socket come from the CPUs that a rank may use and the
/// kernel's lists of each die's and socket's CPUs (those that hwloc reads); the rest from `places`.
/// Where two nodes differ on one level and the next is not known of both, the nearest level that
/// both are known to share counts. Never throws for damaged facts.
PairPlaces pair_places(const std::vector<RankPlace>& ranks, const NodePlaces& places);

/// {"worst": "switch", "mix": {"node": 0.33, "switch": 0.67}, "how": "..."}; null without a pair.
nlohmann::json to_json(const PairPlaces& pairs);

/// "33 % node, 67 % switch (nodes: declared)", "" for null or a damaged one.
std::string pair_places_text(const nlohmann::json& pairs);

}  // namespace dynamiccl
