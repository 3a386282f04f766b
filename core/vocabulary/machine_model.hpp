#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// The shape of the network between the nodes of a machine whose times are computed.
DYN_NAMED_ENUM(MachineShape, "shape", '-', star, fat_tree, torus, dragonfly, bcube, cross_site);
/// What a message of a range of sizes costs.
struct LinkClass {
  double from_bytes = 0;
  double latency_us = 0;  ///< from one end to the other
  double bytes_per_us = 1;
};

/// A kind of link: one class, or several by the size of a message, the smallest first.
struct MachineLink {
  std::vector<LinkClass> classes;
  [[nodiscard]] const LinkClass& at(double message_bytes) const {
    const LinkClass* found = &classes.front();
    for (const LinkClass& one : classes)
      if (message_bytes >= one.from_bytes) found = &one;
    return *found;
  }
};

/// Which link of a machine: between ranks of a node, between nodes, between sites.
enum class LinkTier { node, network, wide };
inline constexpr std::size_t kLinkTiers = 3;

/// What a machine's fitted figures were tried on that they were not fitted to.
DYN_NAMED_ENUM(HeldOut, "held out", '-',
               sizes,        ///< each size of an operation but the outermost two, without it
               collectives,  ///< all sizes of each operation, without it
               ranks,        ///< each count of ranks, without it
               links);       ///< each operation by the models' fastest, its links fitted without it
/// Distances of predictions from what was measured, relative to it.
struct HeldOutError {
  int cells = 0;
  double median = 0;
  double p90 = 0;  ///< nine of ten cells are nearer
};

/// What one call of a library took on a machine that its file was fitted to.
struct MeasuredCall {
  Collective collective = Collective::allreduce;
  int ranks = 2;
  double bytes = 0;  ///< as nccl-tests counts: the whole buffer
  double us = 0;
};
struct MeasuredLibrary {
  std::string name;
  std::vector<MeasuredCall> calls;
  std::map<HeldOut, HeldOutError> errors;  ///< without those that the calls were too few for
};

/// A machine that nobody here has, as its file (profiles/machines) says it. Ranks fill node after
/// node.
struct MachineModel {
  std::string name;
  std::string description;
  int nodes = 1;
  int ranks_per_node = 1;
  std::array<MachineLink, kLinkTiers> links;  ///< by tier; without classes where there is none
  double memory_bytes = 0;                    ///< of a rank; 0 = not said
  double sum_bytes_per_us = 0;                ///< of a reduction; 0 = takes no time
  MachineShape shape = MachineShape::star;
  /// fat_tree: children of a switch, level by level; torus: its dimensions; dragonfly: groups,
  /// chassis of a group, routers of a chassis, nodes of a router; bcube: ports of a switch, levels;
  /// cross_site: sites.
  std::vector<int> counts;
  std::vector<int> up;  ///< fat_tree: parents of a node or switch, level by level
  std::vector<int>
      cables;  ///< fat_tree: to each parent; dragonfly: between groups, chassis, routers
  std::optional<MeasuredLibrary> measured;  ///< of a file that was fitted to a run

  [[nodiscard]] int ranks() const { return nodes * ranks_per_node; }
  [[nodiscard]] const MachineLink& link(LinkTier tier) const {
    return links[static_cast<std::size_t>(tier)];
  }
};

}  // namespace dynamiccl
