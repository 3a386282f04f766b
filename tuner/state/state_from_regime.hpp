#pragma once

#include "core/vocabulary/json.hpp"
#include "tuner/state/state.hpp"
#include "tuner/state/task_key.hpp"

namespace dynamiccl {

/// Fills the fields that describe the surroundings.
/// Pairs of ranks on one node are on the tier of the links inside, others on that of the links
/// between, those in different zones (declared) on the last.
/// @param regime Regime::json ("features" and "ingredients"); what it lacks or spells in a way we
/// do not know stays unknown. Never throws for damaged JSON values.
State state_from_regime(const nlohmann::json& regime, int nodes = 1);

/// Fills what the key says of a call and of where it is made; ranks_total stays as it is unless
/// unknown.
void set_task(State& state, const TaskKey& key, Bytes nominal, Bytes effective);

}  // namespace dynamiccl
