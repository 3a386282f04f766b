#pragma once

#include <string>
#include <vector>

#include "containers/cluster/cluster_session.hpp"
#include "profiles/detect/latency_places.hpp"

namespace dynamiccl {

/// Round trips between every two of the session's nodes, by dynamiccl-probe on each: all answer,
/// and one after the other asks those behind it in the list. Nothing stays there.
/// @param probe its path on the nodes
/// @returns as many rounds; empty where a node has no such program or cannot be reached by others
std::vector<NodeLatencies> measure_latencies(const ClusterSession& session,
                                             const std::string& probe, int rounds);

}  // namespace dynamiccl
