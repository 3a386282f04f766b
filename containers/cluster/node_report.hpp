#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "containers/command.hpp"
#include "core/vocabulary/json.hpp"

namespace dynamiccl {

/// What a node says of itself before it is given ranks (survey_node.sh).
struct NodeReport {
  std::string name;
  std::string problem;  ///< why no rank can run there, "" = it can
  bool apart = false;   ///< it does not see what is written into this machine's folder of launches
  std::string boot_id;
  int cores = 0;
  double clock_offset_s = 0;  ///< its clock minus ours, at best as exact as the way there and back
  double round_trip_s = 0;
  /// Processes that its kernel has ended for want of memory since it was started.
  std::optional<std::uint64_t> oom_kills;
  std::string locked_memory;  ///< ulimit -l: "unlimited" or kilobytes
  nlohmann::json facts;       ///< dynamiccl-probe there, null where it could not run
};

/// A command that ran on a node, and when by this machine's clock.
struct NodeResult : CommandResult {
  double began_s = 0;
  double ended_s = 0;
};

/// The last `oom_kill N` of a text, as /proc/vmstat has it.
std::optional<std::uint64_t> oom_kills_in(const std::string& text);

/// @param timeout how long the node was given to answer
/// @returns the report, its problem being what is amiss and what can be done
NodeReport read_node_report(const std::string& name, const NodeResult& result,
                            std::chrono::seconds timeout);

/// Of nodes that are one machine under two names, the later ones with what is wrong. Nodes without
/// facts are not distinguished.
std::map<std::string, std::string> named_twice(const std::vector<NodeReport>& reports);

/// One line per problem, of many the first ones and the names of the others; "" when every node
/// can take ranks.
std::string problems_text(const std::vector<NodeReport>& reports);

}  // namespace dynamiccl
