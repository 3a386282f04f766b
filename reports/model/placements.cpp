#include "reports/model/placements.hpp"

#include <utility>

#include "core/vocabulary/json.hpp"
#include "reports/model/leaf_difference.hpp"
#include "reports/model/table_view.hpp"

namespace dynamiccl {

std::vector<LaunchPlacement> launch_placements(const Reader& reader, const std::string& run_uuid) {
  const Table table = reader.query(
      "SELECT v.run_id, v.environment, v.backend, v.architecture, v.ranks, v.group_knobs, "
      "v.launch_row, k.rank, k.facts_json ->> '$.process.affinity' AS affinity, "
      "k.facts_json ->> '$.cpu.core_cpus' AS core_cpus, "
      "k.facts_json ->> '$.system.boot_id' AS boot_id FROM v_launch v "
      "JOIN launch_rank k ON k.launch_id = v.launch_row "
      "WHERE v.run_id = ?1 AND v.launch_status = 'ok' ORDER BY v.launch_row, k.rank",
      {run_uuid});
  const TableView rows(table);
  std::vector<LaunchPlacement> placements;
  std::vector<FactsRecord> ranks;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    nlohmann::json facts;
    facts["process"]["affinity"] = stored_json(rows.text(i, "affinity"));
    facts["cpu"]["core_cpus"] = stored_json(rows.text(i, "core_cpus"));
    facts["system"]["boot_id"] = rows.text(i, "boot_id");
    ranks.push_back({static_cast<int>(rows.integer(i, "rank")), std::move(facts)});
    const auto launch = rows.integer(i, "launch_row");
    if (i + 1 < rows.size() && rows.integer(i + 1, "launch_row") == launch) continue;
    if (auto placement = core_placement(std::exchange(ranks, {})))
      placements.push_back({launch, group_figure(rows, i), *std::move(placement)});
  }
  return placements;
}

}  // namespace dynamiccl
