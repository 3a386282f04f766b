#pragma once

#include <optional>

#include "core/vocabulary/json.hpp"

namespace dynamiccl {

/// Tier of the farthest pair of ranks: 1 NVLink or shared memory, 2 PCIe, the
/// machine's own network stack or RDMA of at least 100 Gb/s, 3 slower RDMA or Ethernet of at least
/// 25 Gb/s, 4 slower. A link between containers that their profile caps counts as what it stands
/// for.
/// @param regime Regime::json; never throws for damaged values
/// @param nodes machines that the ranks are on
/// @returns nullopt where the links are not known
std::optional<int> link_tier(const nlohmann::json& regime, int nodes);

}  // namespace dynamiccl
