#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "profiles/detect/regime_context.hpp"

namespace dynamiccl {

/// One ingredient and how it is known.
struct Ingredient {
  nlohmann::json value;
  std::string evidence;
};

using HostGroups = std::map<std::string, std::vector<const nlohmann::json*>>;

/// Ranks by the machine they run on (boot id).
HostGroups ranks_by_host(const std::vector<nlohmann::json>& facts);

/// Whether ranks of one host are in different ones of this namespace ("shm": /dev/shm mounts).
bool is_apart(const HostGroups& hosts, const std::string& name);

bool uses_gpu(Backend backend);

/// Are the ranks of each host one host to NCCL by the library of docs/one-host.md: as it has
/// answered NCCL in them, or as they are about to load it?
bool is_one_host_by_library(const HostGroups& hosts);

/// How ranks with host names of their own are one host to NCCL: "library", "settings" (one
/// NCCL_HOSTID and one /dev/shm), or "" where they are not or speak another library.
std::string one_host_by(const HostGroups& hosts, const RegimeContext& context);

/// "nvlink", "pcie", "shm", "none" or "unknown": the best link the ranks of one host can use.
Ingredient intra_link(const HostGroups& hosts, const RegimeContext& context);

struct DetectedInterLink {
  Ingredient link;  ///< "tcp", "infiniband", "roce-v2", "nvswitch", "none", "mixed"
  Ingredient tier;  ///< "10GbE", "virtual", "400Gb/s", "unknown"
};
/// The best link that leaves a rank's network namespace.
DetectedInterLink inter_link(const std::vector<nlohmann::json>& facts,
                             const RegimeContext& context);

/// "none", "sharp", "nvls-possible" or "declared:NAME".
Ingredient in_network_aggregation(const std::vector<nlohmann::json>& facts,
                                  const RegimeContext& context);

}  // namespace dynamiccl
