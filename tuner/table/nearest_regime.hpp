#pragma once

#include "profiles/detect/regime.hpp"
#include "tuner/table/table.hpp"

namespace dynamiccl {

/// The table's regime equal to the one detected, else the nearest (RegimeMatch::text says by what
/// it differs); nullopt for a table without regimes. `index` is into table.regimes.
std::optional<RegimeMatch> nearest_regime(const ConfigurationTable& table, const Regime& detected);

}  // namespace dynamiccl
