#pragma once

#include <functional>
#include <string>
#include <vector>

#include "containers/progress.hpp"
#include "profiles/detect/latency_places.hpp"

namespace dynamiccl {

/// argv that runs a command on a node. @param takes_input as ClusterSession::node_argv()
using NodeArgv = std::function<std::vector<std::string>(
    const std::string& node, const std::vector<std::string>& command, bool takes_input)>;

/// Round trips between every two nodes, by dynamiccl-probe on each: all answer, and one after the
/// other asks those behind it in the list. Nothing stays there.
/// @param probe its path on the nodes
/// @param interface whose addresses are asked, "" = that of the default route
/// @returns as many rounds; empty where a node has no such program or cannot be reached by others,
/// or when it was interrupted
std::vector<NodeLatencies> measure_latencies(const std::vector<std::string>& nodes,
                                             const NodeArgv& argv, const std::string& probe,
                                             const std::string& interface, int rounds,
                                             const Progress& progress);

}  // namespace dynamiccl
