#include "core/vocabulary/text.hpp"
#include "reports/model/stored_command.hpp"
#include "reports/model/table_view.hpp"
#include "reports/page/section.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

/// What stands at the top of a document: names and versions; lists of containers and mounts are
/// left to `show`.
json top_facts(const json& document) {
  json facts = json::object();
  if (!document.is_object()) return facts;
  for (const auto& [key, value] : document.items())
    if (value.is_string() || value.is_number()) facts[key] = value;
  return facts;
}

json run_facts(const PageContext& page) {
  const Table table = page.reader.query(
      "SELECT r.uuid, r.name, r.status, r.started_utc, r.ended_utc, r.seed, r.spec_path, "
      "r.tool_version, r.argv_json, r.host_json, r.protocol_json, e.sha256, e.spec_text, "
      "e.overrides_json FROM run r JOIN experiment e ON e.id = r.experiment_id WHERE r.id = ?1",
      {page.run_row});
  const TableView row(table);
  json facts;
  for (const char* column : {"uuid", "name", "status", "started_utc", "ended_utc", "seed",
                             "spec_path", "tool_version", "sha256", "spec_text"})
    facts[column] = row.text(0, column);
  facts["command"] = stored_command_line(row.text(0, "argv_json"));
  facts["host"] = stored_json(row.text(0, "host_json"));
  facts["protocol"] = stored_json(row.text(0, "protocol_json"));
  facts["overrides"] = stored_json(row.text(0, "overrides_json"));
  return facts;
}

json commands_of_groups(const PageContext& page) {
  const Table table = page.reader.query(
      "SELECT v.environment, v.backend, v.architecture, v.ranks, v.group_knobs, v.argv_json, "
      "(SELECT k.library || ' ' || coalesce(k.library_version, '') FROM launch_rank k "
      "  WHERE k.launch_id = v.launch_row AND k.library IS NOT NULL LIMIT 1) AS library, "
      "(SELECT l.container_json FROM launch l WHERE l.id = v.launch_row) AS container_json "
      "FROM v_launch v WHERE v.run_row = ?1 AND v.launch_row IN "
      "(SELECT max(l.id) FROM launch l GROUP BY l.group_id) ORDER BY v.group_row",
      {page.run_row});
  const TableView rows(table);
  json groups = json::array();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    groups.push_back({{"environment", rows.text(i, "environment")},
                      {"backend", rows.text(i, "backend")},
                      {"architecture", rows.text(i, "architecture")},
                      {"ranks", rows.integer(i, "ranks")},
                      {"knobs", rows.text(i, "group_knobs")},
                      {"library", rows.text(i, "library")},
                      {"container", top_facts(stored_json(rows.text(i, "container_json")))},
                      {"command", stored_command_line(rows.text(i, "argv_json"))}});
  }
  return groups;
}

}  // namespace

json provenance_data(const PageContext& page) {
  const Table counts = page.reader.query(
      "SELECT count(*) AS attempts, coalesce(sum(launch_status = 'ok'), 0) AS ok, "
      "count(DISTINCT block) AS blocks, coalesce(sum(duration_s), 0) AS seconds "
      "FROM v_launch WHERE run_row = ?1",
      {page.run_row});
  const TableView row(counts);
  return {{"run", run_facts(page)},
          {"launches",
           {{"attempts", row.integer(0, "attempts")},
            {"ok", row.integer(0, "ok")},
            {"blocks", row.integer(0, "blocks")},
            {"seconds", rounded(row.real(0, "seconds"))}}},
          {"groups", commands_of_groups(page)}};
}

}  // namespace dynamiccl
