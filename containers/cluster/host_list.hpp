#pragma once

#include <string>
#include <vector>

namespace dynamiccl {

/// A machine of a cluster: how it is reached, and how many ranks it takes.
struct ClusterNode {
  std::string name;
  int slots = 1;

  bool operator==(const ClusterNode&) const = default;
};

/// Reads hosts as launchers write them: one a line or parted by commas, `node1`, `node1:4`,
/// `node1 slots=4` (`user@node1` too), # begins a comment. A host that is named again gets the sum
/// of its slots, in the place of its first naming.
/// @param source names the text in errors
/// @throws Error(input) with source:line and what is wrong
std::vector<ClusterNode> parse_hosts(const std::string& text, const std::string& source);

/// Where `ranks` ranks go: an equal share on each of the nodes, the first ones one more, no node
/// beyond its slots; neighbours in rank are neighbours in place. Nodes without a rank are left out.
/// @param per_node ranks that fill a node before the next one gets any; 0 = equal shares
/// @throws Error(input) when the nodes have too few slots, saying how many
std::vector<ClusterNode> place_ranks(const std::vector<ClusterNode>& nodes, int ranks,
                                     int per_node);

/// The same ranks numbered over the nodes in turn, one to each that has room: an entry per rank.
std::vector<ClusterNode> dealt_in_turn(std::vector<ClusterNode> placed);

/// "node1 (2 ranks), node2 (1 rank)"
std::string placement_text(const std::vector<ClusterNode>& nodes);

}  // namespace dynamiccl
