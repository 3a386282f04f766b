#pragma once

#include <nlohmann/json.hpp>

#include "tuner/state/state.hpp"
#include "tuner/state/task_key.hpp"

namespace dynamiccl {

/// Fills the fields that describe the surroundings.
/// @param regime Regime::json ("features" and "ingredients"); what it lacks or spells in a way we
/// do not know stays unknown. Never throws for damaged JSON values.
State state_from_regime(const nlohmann::json& regime, int nodes = 1);

/// Fills what the key says of a call; ranks_total stays as it is unless unknown.
void set_task(State& state, const TaskKey& key, Bytes nominal, Bytes effective);

/// Tier of the farthest pair (E-41): 1 NVLink or shared memory, 2 PCIe or a machine's own TCP or
/// RDMA to the rack, 3 Ethernet of at least 25 Gb/s, 4 slower. nullopt when the links are unknown.
std::optional<int> tier_of(std::optional<IntraLink> intra, std::optional<InterLink> inter,
                           int nodes, std::optional<double> gbit_per_s);

}  // namespace dynamiccl
