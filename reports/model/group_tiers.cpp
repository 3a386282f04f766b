#include "reports/model/group_tiers.hpp"

#include <algorithm>

#include "profiles/detect/link_tier.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/leaf_difference.hpp"
#include "reports/model/table_view.hpp"

namespace dynamiccl {
namespace {

struct PlacedGroup {
  std::string environment;
  std::string key;
  std::optional<int> tier;
};

std::vector<PlacedGroup> placed_groups(const Reader& reader, std::int64_t run) {
  const Table table = reader.query(
      "SELECT v.run_id, v.environment, v.backend, v.architecture, v.ranks, v.group_knobs, "
      "l.regime_json AS regime, (SELECT count(DISTINCT k.facts_json ->> '$.system.boot_id') "
      "FROM launch_rank k WHERE k.launch_id = v.launch_row) AS nodes FROM (SELECT max(launch_row) "
      "AS newest FROM v_launch WHERE run_row = ?1 AND launch_status = 'ok' AND regime_id IS NOT "
      "NULL GROUP BY group_row) JOIN v_launch v ON v.launch_row = newest JOIN launch l ON l.id = "
      "newest",
      {run});
  const TableView rows(table);
  std::vector<PlacedGroup> groups;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto regime = stored_json(rows.text(i, "regime"));
    const auto nodes = std::max<std::int64_t>(1, rows.integer(i, "nodes"));
    groups.push_back({rows.text(i, "environment"), group_key(group_figure(rows, i)),
                      link_tier(regime, static_cast<int>(nodes))});
  }
  return groups;
}

}  // namespace

std::map<std::string, std::optional<int>> tiers_of_groups(const Reader& reader, std::int64_t run) {
  std::map<std::string, std::optional<int>> tiers;
  for (auto& group : placed_groups(reader, run)) tiers[group.key] = group.tier;
  return tiers;
}

std::map<std::string, int> tiers_of_environments(const Reader& reader, std::int64_t run) {
  std::map<std::string, int> tiers;
  for (const auto& group : placed_groups(reader, run))
    if (group.tier) tiers[group.environment] = std::max(tiers[group.environment], *group.tier);
  return tiers;
}

}  // namespace dynamiccl
