#pragma once

#include <cctype>
#include <optional>
#include <string>
#include <string_view>

#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// The shape of the network between nodes, which is declared, as no probe sees it.
enum class Topology { fat_tree, bcube, jellyfish, torus, hammingmesh, sip_ocs, topoopt, mixed };
template <>
struct NameTable<Topology> {
  static constexpr std::string_view what = "topology";
  static constexpr std::array entries{
      Named{Topology::fat_tree, "fat-tree"},       Named{Topology::bcube, "bcube"},
      Named{Topology::jellyfish, "jellyfish"},     Named{Topology::torus, "torus"},
      Named{Topology::hammingmesh, "hammingmesh"}, Named{Topology::sip_ocs, "sip-ocs"},
      Named{Topology::topoopt, "topoopt"},         Named{Topology::mixed, "mixed"}};
};

/// Reads a name in any case; a torus also by its number of dimensions ("2D-Torus").
inline std::optional<Topology> find_topology(std::string_view text) {
  std::string name;
  for (const char c : text) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (name == "2d-torus" || name == "3d-torus") return Topology::torus;
  return find_named<Topology>(name);
}

}  // namespace dynamiccl
