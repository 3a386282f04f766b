#include "reports/model/machines.hpp"

#include <fmt/format.h>

#include "core/vocabulary/text.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/leaf_difference.hpp"
#include "reports/model/table_view.hpp"

namespace dynamiccl {

std::string machines_text(const Machines& machines) {
  if (machines.nodes.empty()) return "";
  constexpr std::size_t kShown = 8;
  std::vector<std::string> names(machines.names.begin(), machines.names.end());
  const std::size_t all = names.size();
  if (all > kShown) {
    names.resize(kShown);
    names.push_back(fmt::format("{} more", all - kShown));
  }
  std::vector<std::string> counts;
  for (const auto nodes : machines.nodes) counts.push_back(std::to_string(nodes));
  std::string text = machines.nodes == std::set<std::int64_t>{1} ? "one machine"
                                                                 : join(counts, " and ") + " nodes";
  return names.empty() ? text : text + ": " + join(names, ", ");
}

std::map<std::string, Machines> machines_of_run(const Reader& reader, const std::string& run_uuid) {
  const Table table = reader.query(
      "SELECT DISTINCT v.run_id, v.environment, v.backend, v.architecture, v.ranks, v.group_knobs, "
      "CASE WHEN json_valid(l.container_json) THEN l.container_json -> '$.cluster.nodes' END AS "
      "nodes, CASE WHEN json_valid(r.host_json) THEN r.host_json ->> '$.system.hostname' END AS "
      "host FROM v_launch v JOIN launch l ON l.id = v.launch_row JOIN run r ON r.uuid = v.run_id "
      "LEFT JOIN imported_run i ON i.run_id = r.id AND i.format <> 'dynamiccl' "
      "WHERE v.run_id = ?1 AND v.launch_status = 'ok' AND i.run_id IS NULL",
      {run_uuid});
  const TableView rows(table);
  std::map<std::string, Machines> groups;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Machines& machines = groups[group_key(group_figure(rows, i))];
    const auto nodes = stored_json(rows.text(i, "nodes"));
    if (!nodes.is_array() || nodes.empty()) {
      machines.nodes.insert(1);
      if (const auto host = rows.text(i, "host"); !host.empty()) machines.names.insert(host);
      continue;
    }
    machines.nodes.insert(static_cast<std::int64_t>(nodes.size()));
    for (const auto& node : nodes)
      if (node.is_object() && node.contains("name") && node["name"].is_string())
        machines.names.insert(node["name"].get<std::string>());
  }
  return groups;
}

}  // namespace dynamiccl
