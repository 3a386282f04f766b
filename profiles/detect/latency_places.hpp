#pragma once

#include <string>
#include <vector>

#include "profiles/detect/node_places.hpp"

namespace dynamiccl {

/// Microseconds of a round trip between every two of these nodes.
struct NodeLatencies {
  std::vector<std::string> nodes;
  std::vector<std::vector<double>> us;  ///< us[i][j] for i < j; 0 = could not be measured
};

/// Where nodes stand by nothing but latency: where the sorted round trips of all pairs leap by half
/// or more, nodes on the near side of the leap stand together, at a switch (the first leap), in a
/// rack (the second), in a zone (the third), and all of them share what comes next. Nothing is
/// said, by an empty result, unless every round tells the same: who is near is near to all who are
/// near to him (else there is no place, but a slow node), every pair was measured, and there is a
/// leap.
/// @param rounds of measuring the same nodes, two at least
NodePlaces places_by_latency(const std::vector<NodeLatencies>& rounds);

}  // namespace dynamiccl
