#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "containers/cluster/cluster_session.hpp"
#include "core/vocabulary/json.hpp"
#include "orchestrator/doctor/pair_search.hpp"
#include "orchestrator/launch/launch.hpp"
#include "orchestrator/run/console.hpp"

namespace dynamiccl {

/// What is amiss with a node besides its speed.
struct NodeNote {
  std::string node;
  std::string what;
};

/// What a look at the nodes of a cluster came to, before anything is measured there.
struct Preflight {
  std::vector<std::string> nodes;
  std::string start;            ///< how ranks get there: "ssh", "srun", "mpirun"
  std::string unavailable;      ///< why no launch could be tried, "" = they were
  std::vector<NodeNote> notes;  ///< what differs between the nodes
  Backend backend = Backend::gloo;
  Bytes size;  ///< what the two ranks of a launch exchange in a call
  PairSearchResult search;
  nlohmann::json pairs;  ///< where pairs of nodes stand, as to_json() of pair_places() has it

  /// Something to be mended before measuring.
  [[nodiscard]] bool found() const;
};

/// Clocks, limits, machines and software of nodes that differ, from what they said of themselves.
/// Pure.
std::vector<NodeNote> odd_nodes(const std::vector<NodeReport>& reports);

/// Launches pairs of nodes until it is known which of them are slow or cannot be reached. Stores
/// nothing. @param backend carries the pairs; nullopt = the first one that can
Preflight look_at_nodes(std::shared_ptr<ClusterSession> cluster, LaunchSite site,
                        std::optional<Backend> backend, Console& console);

std::string to_text(const Preflight& preflight);
nlohmann::json to_json(const Preflight& preflight);

}  // namespace dynamiccl
