#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "db/usual_db.hpp"
#include "profiles/profile.hpp"
#include "reports/compare/comparison.hpp"
#include "reports/model/cell_columns.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/leaf_difference.hpp"
#include "reports/model/placements.hpp"
#include "reports/model/run_facts.hpp"
#include "reports/model/table_view.hpp"
#include "reports/model/trust.hpp"

namespace dynamiccl {
namespace {

/// What of a run's protocol makes another measurement of the same cell. The rest (launches, time
/// caps, retries) decides how well it is measured, not what.
constexpr std::array<std::string_view, 5> kMethod{"warmup", "rank_aggregation", "verify",
                                                  "batch_target_us", "max_batch"};

/// Parts of a foreign table's source that are another with every start of its program.
constexpr std::array<std::string_view, 4> kPassingOfImports{".file", "average_bus_bandwidth",
                                                            ".start_time", ".end_time"};

/// Adds a stored document's leaves by PREFIX.LEAF, without those that pass. A value that is not
/// known is as good as none: older programs did not look for it.
void add_leaves(Facts& facts, const std::string& prefix, const std::string& document) {
  for (auto& [what, value] : leaves_of(stored_json(document))) {
    if (is_passing(what) || value == "unknown") continue;
    facts[prefix.empty() ? what : prefix + "." + what] = value;
  }
}

/// What belongs to an environment or a backend. The one that the sides differ in is left out of the
/// names, so that a difference is shown as one and not as two facts that a side lacks.
class Surroundings {
 public:
  explicit Surroundings(const ComparisonSide& side) : axis_(side.selection.axis) {
    for (const auto& figure : side.figures) {
      environments_.insert(figure.environment);
      backends_.insert(figure.backend);
    }
  }
  [[nodiscard]] bool has(const std::string& environment, const std::string& backend) const {
    return (environment.empty() || environments_.contains(environment)) &&
           (backend.empty() || backends_.contains(backend));
  }
  [[nodiscard]] std::string name(const std::string& what, const std::string& environment,
                                 const std::string& backend) const {
    std::string text = what;
    if (!environment.empty() && axis_ != "environment") text += " " + environment;
    if (!backend.empty() && axis_ != "backend") text += " " + backend;
    return text;
  }

 private:
  std::string axis_;
  std::set<std::string> environments_;
  std::set<std::string> backends_;
};

/// Rows of environment, backend and value; the values of one name are listed.
void add_grouped(Facts& facts, const Reader& reader, const Surroundings& around,
                 const std::string& what, const std::string& sql, const std::string& run) {
  const Table table = reader.query(sql, {run});
  const TableView rows(table);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto environment = rows.text(i, "environment");
    const auto backend = rows.text(i, "backend");
    if (!around.has(environment, backend)) continue;
    auto& value = facts[around.name(what, environment, backend)];
    value += (value.empty() ? "" : ", ") + rows.text(i, "value");
  }
}

void add_profiles(Facts& facts, const Reader& reader, const Surroundings& around,
                  const std::string& run) {
  const Table profiles = reader.query(
      "SELECT DISTINCT p.environment AS name, p.profile_json AS value FROM run r JOIN plan_group g "
      "ON g.run_id = r.id JOIN profile p ON p.id = g.profile_id WHERE r.uuid = ?1",
      {run});
  const TableView rows(profiles);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto environment = rows.text(i, "name");
    if (!around.has(environment, "")) continue;
    add_leaves(facts, around.name("profile", environment, ""),
               shown_profile(stored_json(rows.text(i, "value"))).dump());
  }
}

/// Where the ranks of each group were let run. It weighs more than most of what else may differ:
/// kPlacement stands first in the provenance.
void add_placements(ComparisonSide& side, const Reader& reader, const Surroundings& around) {
  std::map<std::string, std::set<std::string>> told;
  for (const auto& [launch, group, placement] : launch_placements(reader, side.run_id)) {
    if (!around.has(group.environment, group.backend)) continue;
    auto& of_group = side.placements[group_key(group)];
    of_group.cpus.insert(placement.cpus);
    of_group.shapes.insert(placement.shape);
    of_group.layouts.insert(placement.layout);
    told[around.name(std::string(kPlacement), group.environment, group.backend)].insert(
        placement.cpus);
  }
  for (const auto& [name, texts] : told)
    side.provenance[name] = join({texts.begin(), texts.end()}, " and ");
}

/// Which machines the ranks were on. How many there were is another experiment, which run and plan
/// do not tell: printed first.
void add_machines(ComparisonSide& side, const Reader& reader) {
  const auto groups = machines_of_run(reader, side.run_id);
  std::set<std::string> seen;
  for (const auto& figure : side.figures) {
    const auto found = groups.find(group_key(figure));
    if (found == groups.end() || !seen.insert(found->first).second) continue;
    side.machines.nodes.insert(found->second.nodes.begin(), found->second.nodes.end());
    side.machines.names.insert(found->second.names.begin(), found->second.names.end());
  }
  std::vector<std::string> counts;
  for (const auto nodes : side.machines.nodes) counts.push_back(std::to_string(nodes));
  if (!counts.empty()) side.provenance[std::string(kNodes)] = join(counts, " and ");
}

/// What each environment, backend and launch was, besides the machine.
void add_surroundings(ComparisonSide& side, const Reader& reader) {
  const Surroundings around(side);
  auto& facts = side.provenance;
  add_grouped(facts, reader, around, "library",
              "SELECT NULL AS environment, v.backend, k.library || coalesce(' ' || "
              "k.library_version, '') AS value FROM v_launch v JOIN launch_rank k ON k.launch_id = "
              "v.launch_row WHERE v.run_id = ?1 AND k.library IS NOT NULL GROUP BY 2, 3 "
              "ORDER BY 2, 3",
              side.run_id);
  add_grouped(facts, reader, around, "regime",
              "SELECT DISTINCT environment, backend, regime_name AS value FROM v_launch "
              "WHERE run_id = ?1 AND regime_name IS NOT NULL ORDER BY 1, 2, 3",
              side.run_id);
  for (const char* part : {"image", "image_id", "image_content_sha256", "engine_version"}) {
    add_grouped(facts, reader, around, std::string("container ") + part,
                fmt::format("SELECT DISTINCT v.environment, NULL AS backend, l.container_json ->> "
                            "'$.{0}' AS value FROM v_launch v JOIN launch l ON l.id = v.launch_row "
                            "WHERE v.run_id = ?1 AND l.container_json ->> '$.{0}' IS NOT NULL "
                            "ORDER BY 1, 3",
                            part),
                side.run_id);
  }
  add_placements(side, reader, around);
  add_machines(side, reader);
  add_profiles(facts, reader, around, side.run_id);
}

void add_variables(Facts& facts, const Reader& reader, const std::string& run) {
  const Table table = reader.query(
      "SELECT DISTINCT j.key AS name, j.value AS value FROM run r JOIN plan_group g ON g.run_id = "
      "r.id JOIN launch l ON l.group_id = g.id, json_each(CASE WHEN json_valid(l.environment_json) "
      "AND json_type(l.environment_json) = 'object' THEN l.environment_json ELSE '{}' END) j "
      "WHERE r.uuid = ?1 AND j.atom IS NOT NULL AND j.key NOT LIKE 'DYNAMICCL_%' ORDER BY 1, 2",
      {run});
  const TableView rows(table);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto& value = facts["variable " + rows.text(i, "name")];
    value += (value.empty() ? "" : ", ") + rows.text(i, "value");
  }
}

void read_facts(ComparisonSide& side, const Reader& reader) {
  const Table table = reader.query(
      "SELECT r.tool_version, r.host_json, r.protocol_json, e.sha256, i.format, i.source_json "
      "FROM run r JOIN experiment e ON e.id = r.experiment_id "
      "LEFT JOIN imported_run i ON i.run_id = r.id WHERE r.uuid = ?1",
      {side.run_id});
  const TableView row(table);
  const std::string format = row.text(0, "format");
  side.imported = !format.empty() && format != "dynamiccl";
  side.provenance["program"] = row.text(0, "tool_version");
  if (!side.imported) side.provenance["experiment"] = row.text(0, "sha256").substr(0, 16);
  if (side.imported) {
    side.provenance["imported from"] = format;
    add_leaves(side.provenance, "source", row.text(0, "source_json"));
    std::erase_if(side.provenance, [](const auto& fact) {
      return std::any_of(kPassingOfImports.begin(), kPassingOfImports.end(),
                         [&](auto end) { return fact.first.ends_with(end); });
    });
  }
  add_leaves(side.provenance, "host", row.text(0, "host_json"));
  Facts protocol;
  add_leaves(protocol, "", row.text(0, "protocol_json"));
  for (auto& [key, value] : protocol) {
    const bool method = std::find(kMethod.begin(), kMethod.end(), key) != kMethod.end();
    (method ? side.method : side.provenance)[method ? key : "protocol " + key] = std::move(value);
  }
  add_surroundings(side, reader);
  add_variables(side.provenance, reader, side.run_id);
}

/// The cells for which a condition holds on v_cell, with their status and why.
std::vector<CellWithReason> cells_with_reason(const Reader& reader, const ComparisonSide& side,
                                              const CellConditions& where,
                                              const std::string& condition) {
  const Table table = reader.query(
      "SELECT run_id, environment, backend, architecture, collective, size_bytes, ranks, datatype, "
      "algorithm, in_place, group_knobs, cell_knobs, status, reason FROM v_cell "
      "WHERE run_id = ?1 AND " +
          condition,
      {side.run_id});
  const TableView rows(table);
  std::vector<CellWithReason> cells;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto reason = rows.text(i, "reason");
    CellWithReason cell{figure_cell(rows, i),
                        rows.text(i, "status") + (reason.empty() ? "" : ": " + reason)};
    if (!filter_figures({cell.figure}, where).empty()) cells.push_back(std::move(cell));
  }
  return cells;
}

/// A condition that no cell of the side meets is a slip of the pen more often than a question.
/// @param figures of the side, without conditions
void refuse_empty_choice(const SideSelection& selection, const std::string& run,
                         const std::vector<CellFigure>& figures,
                         const std::vector<std::pair<std::string, std::string>>& where) {
  std::vector<std::string> all;
  for (const auto& condition : where) {
    all.push_back(condition.first + "=" + condition.second);
    if (!filter_figures(figures, {condition}).empty()) continue;
    std::vector<std::string> values;
    for (const auto& figure : figures) {
      const auto value = axis_value(figure, condition.first);
      if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
    }
    throw Error(ErrorKind::input,
                fmt::format("compare: --where {}: no measured cell of {} (run {}) has this {}; {}",
                            all.back(), selection.label, run, condition.first,
                            suggestion(condition.second, values)));
  }
  throw Error(ErrorKind::input,
              fmt::format("compare: no measured cell of {} (run {}) meets all of --where {}; leave "
                          "one out, or see `dynamiccl query latency --run {}{}`",
                          selection.label, run, join(all, " and "), run, db_words(selection.db)));
}

bool has_environment(const SideDefaults& defaults, const std::string& word) {
  std::error_code ignored;
  if (!std::filesystem::exists(defaults.db, ignored)) return false;
  const Reader reader(defaults.db);
  if (reader.query("SELECT 1 FROM run LIMIT 1").rows.empty()) return false;
  const auto found = reader.query(
      "SELECT 1 FROM run r JOIN plan_group g ON g.run_id = r.id JOIN profile p ON p.id = "
      "g.profile_id WHERE r.uuid = ?1 AND p.environment = ?2 LIMIT 1",
      {reader.resolve_run(defaults.run), word});
  return !found.rows.empty();
}

std::string run_of_revision(const std::string& db, const std::string& revision) {
  const Reader reader(db);
  const Table table = reader.query("SELECT uuid, tool_version FROM run ORDER BY id DESC");
  const TableView rows(table);
  std::set<std::string> known;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string version = rows.text(i, "tool_version");
    const auto open = version.find('(');
    if (open == std::string::npos) continue;
    const auto own = version.substr(open + 1, version.find_first_of(",)", open) - open - 1);
    // Either may be the shorter one: what is stored is itself a prefix of the commit's full name.
    if (!revision.empty() && (own.starts_with(revision) || revision.starts_with(own)))
      return rows.text(i, "uuid");
    known.insert(own);
  }
  throw Error(
      ErrorKind::input,
      fmt::format("compare: no run of commit {} in {}; it holds runs of {}", revision, db,
                  known.empty() ? "no known commit" : join({known.begin(), known.end()}, ", ")));
}

std::optional<SideSelection> database_side(const std::string& word) {
  const auto exists = [](const std::string& path) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(path, ignored);
  };
  if (exists(word)) return SideSelection{word, word, "last", "", ""};
  const auto colon = word.rfind(':');
  if (colon == std::string::npos || !exists(word.substr(0, colon))) return std::nullopt;
  return SideSelection{word, word.substr(0, colon), word.substr(colon + 1), "", ""};
}

}  // namespace

SideSelection parse_side(const std::string& word, const SideDefaults& defaults) {
  if (const auto equals = word.find('='); equals != std::string::npos) {
    const std::string axis = word.substr(0, equals);
    axis_value(CellFigure{}, axis);  // refuses an unknown one
    return {word, defaults.db, defaults.run, axis, word.substr(equals + 1)};
  }
  if (auto side = database_side(word)) return *side;
  if (word.starts_with("commit:"))
    return {word, defaults.db, run_of_revision(defaults.db, word.substr(7)), "", ""};
  if (has_environment(defaults, word))
    return {word, defaults.db, defaults.run, "environment", word};
  try {
    return {word, defaults.db, Reader(defaults.db).resolve_run(word), "", ""};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    throw Error(ErrorKind::input,
                fmt::format("compare: {}\nA side is a run (id, prefix, last, last~1), a database "
                            "FILE.sqlite[:RUN], commit:REVISION, an environment of the run --run, "
                            "or AXIS=VALUE in it, as in backend=gloo",
                            error.what()));
  }
}

ComparisonSide load_side(const SideSelection& selection,
                         const std::vector<std::pair<std::string, std::string>>& where) {
  const Reader reader(selection.db);
  ComparisonSide side;
  side.selection = selection;
  side.run_id = reader.resolve_run(selection.run);
  const Table about =
      reader.query("SELECT name, status, started_utc FROM run WHERE uuid = ?1", {side.run_id});
  side.run_name = TableView(about).text(0, "name");
  side.run_status = TableView(about).text(0, "status");
  side.started_utc = TableView(about).text(0, "started_utc");
  CellConditions conditions;
  if (!selection.axis.empty()) conditions.emplace_back(selection.axis, selection.value);
  const auto of_run = load_figures(reader, run_scope(reader, side.run_id));
  const auto of_side = filter_figures(of_run, conditions);
  conditions.insert(conditions.end(), where.begin(), where.end());
  side.figures = filter_figures(of_run, conditions);
  if (side.figures.empty() && !of_side.empty())
    refuse_empty_choice(selection, side.run_id, of_side, where);
  side.without_result = cells_with_reason(reader, side, conditions, "launches = 0");
  side.with_failures = cells_with_reason(reader, side, conditions,
                                         "launches > 0 AND status IN ('failed', 'timed_out')");
  read_facts(side, reader);
  side.trust = trust_notes(reader, side.run_id, of_run, side.figures);
  return side;
}

}  // namespace dynamiccl
