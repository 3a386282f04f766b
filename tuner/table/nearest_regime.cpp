#include "tuner/table/nearest_regime.hpp"

namespace dynamiccl {

std::optional<RegimeMatch> nearest_regime(const ConfigurationTable& table, const Regime& detected) {
  for (std::size_t i = 0; i < table.regimes.size(); ++i)
    if (table.regimes[i].id == detected.id) return RegimeMatch{i, true, {}, "exact"};
  std::vector<nlohmann::json> known;
  known.reserve(table.regimes.size());
  for (const TableRegime& regime : table.regimes) known.push_back(regime.json);
  return match_regime(detected.json, known);
}

}  // namespace dynamiccl
