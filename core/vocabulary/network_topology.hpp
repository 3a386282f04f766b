#pragma once

#include <cctype>
#include <optional>
#include <string>
#include <string_view>

#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// The shape of the network between nodes, which is declared, as no probe sees it.
DYN_NAMED_ENUM(Topology, "topology", '-', fat_tree, bcube, jellyfish, torus, hammingmesh, sip_ocs,
               topoopt, mixed);
/// Reads a name in any case; a torus also by its number of dimensions ("2D-Torus").
inline std::optional<Topology> find_topology(std::string_view text) {
  std::string name;
  for (const char c : text) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (name == "2d-torus" || name == "3d-torus") return Topology::torus;
  return find_named<Topology>(name);
}

}  // namespace dynamiccl
