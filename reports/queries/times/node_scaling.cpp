#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/vocabulary/text.hpp"
#include "reports/model/cell_columns.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/machines.hpp"
#include "reports/model/run_facts.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

/// A cell with what of its run and group decides what it may be compared with.
struct Placed {
  CellFigure figure;
  Machines machines;
  std::int64_t nodes = 0;  ///< 0: launches on unlike many
  std::string method;      ///< of its run's protocol
  std::string with;        ///< library and processors
};

std::string method_of(const Reader& reader, const std::string& run) {
  const Table table = reader.query(
      "SELECT 'warm-up ' || coalesce(protocol_json ->> '$.warmup', '?') || ', ' || "
      "coalesce(protocol_json ->> '$.rank_aggregation', '?') || ' over ranks, batches of ' || "
      "coalesce(protocol_json ->> '$.batch_target_us', '?') || ' us' AS method FROM run "
      "WHERE uuid = ?1 AND json_valid(protocol_json)",
      {run});
  const TableView rows(table);
  return rows.size() == 0 ? "" : rows.text(0, "method");
}

/// Library and processors of a run's ranks, by backend.
std::map<std::string, std::string> surroundings_of(const Reader& reader, const std::string& run) {
  const Table table = reader.query(
      "SELECT DISTINCT v.backend, coalesce(k.library || coalesce(' ' || k.library_version, ''), "
      "'') "
      "|| coalesce(' on ' || (k.facts_json ->> '$.cpu.model'), '') AS machine FROM v_launch v "
      "JOIN launch_rank k ON k.launch_id = v.launch_row WHERE v.run_id = ?1 AND v.launch_status = "
      "'ok' AND json_valid(k.facts_json) ORDER BY 1, 2",
      {run});
  const TableView rows(table);
  std::map<std::string, std::string> told;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto& text = told[rows.text(i, "backend")];
    text += (text.empty() ? "" : " and ") + rows.text(i, "machine");
  }
  return told;
}

std::vector<Placed> placed_cells(const Reader& reader, std::int64_t run) {
  const std::string uuid = run_uuid_of(reader, run);
  const auto machines = machines_of_run(reader, uuid);
  const std::string method = method_of(reader, uuid);
  auto surroundings = surroundings_of(reader, uuid);
  std::vector<Placed> cells;
  for (CellFigure& figure : load_figures(reader, {run})) {
    const auto found = machines.find(group_key(figure));
    if (found == machines.end()) continue;
    const auto& nodes = found->second.nodes;
    const std::string with = surroundings[figure.backend];
    cells.push_back(
        {std::move(figure), found->second, nodes.size() == 1 ? *nodes.begin() : 0, method, with});
  }
  return cells;
}

/// All that a cell and its base have in common.
std::string work_key(const CellFigure& f) {
  return fmt::format("{}\n{}\n{}\n{}\n{:020}\n{}\n{}\n{}\n{}\n{}",
                     environment_order(f.environment).first, f.environment, f.backend, f.collective,
                     f.size_bytes, f.architecture, f.datatype, f.algorithm, f.in_place,
                     f.group_knobs + f.cell_knobs);
}

/// Ranks that a node has; 0: not alike many.
std::int64_t ranks_a_node(const Placed& cell) {
  return cell.nodes > 0 && cell.figure.ranks % cell.nodes == 0 ? cell.figure.ranks / cell.nodes : 0;
}

/// The same work on the fewest nodes: with as many ranks on each where that was measured, else with
/// as many ranks in all. @param cells in the order of the table: of equals the last is the newest
const Placed* base_of(const Placed& cell, const std::vector<Placed>& cells) {
  if (cell.nodes == 0) return nullptr;
  const auto fewest = [&](auto&& alike) {
    const Placed* base = nullptr;
    for (const Placed& other : cells)
      if (other.nodes > 0 && other.nodes < cell.nodes && alike(other) &&
          (base == nullptr || other.nodes <= base->nodes))
        base = &other;
    return base;
  };
  const auto each = ranks_a_node(cell);
  if (const Placed* base =
          fewest([&](const Placed& other) { return each > 0 && ranks_a_node(other) == each; }))
    return base;
  return fewest([&](const Placed& other) { return other.figure.ranks == cell.figure.ranks; });
}

/// What makes a ratio say something else, or nothing, of nodes.
std::string note_on(const Placed& cell, const Placed* base, bool& comparable) {
  comparable = false;
  if (cell.nodes == 0) return "launches of it ran on " + machines_text(cell.machines);
  if (base == nullptr) return "";
  if (cell.method != base->method)
    return fmt::format("no ratio: measured by {}, the base by {}", cell.method, base->method);
  if (cadences_of({&cell.figure, &base->figure}).size() > 1)
    return "no ratio: calls timed by another cadence than the base's";
  comparable = true;
  return cell.with == base->with ? "" : fmt::format("{}, the base {}", cell.with, base->with);
}

void add_ratio(std::vector<Value>& row, const Placed& cell, const Placed& base) {
  const Ratio ratio = time_ratio(cell.figure, base.figure);
  row.emplace_back(ratio.value);
  add_bounds(row, ratio.interval);
  const double of_cell = cell.figure.busbw_factor.value_or(0);
  const double of_base = base.figure.busbw_factor.value_or(0);
  if (!(of_cell > 0 && of_base > 0)) return row.resize(row.size() + 3);
  const double bytes = of_cell / of_base;
  row.emplace_back(bytes / ratio.value);
  if (!ratio.interval) return row.resize(row.size() + 2);
  row.emplace_back(bytes / ratio.interval->high);
  row.emplace_back(bytes / ratio.interval->low);
}

std::vector<Value> scaling_row(const Placed& cell, const std::vector<Placed>& cells) {
  const CellFigure& f = cell.figure;
  std::vector<Value> row{f.run_id,
                         f.environment,
                         f.backend,
                         f.architecture,
                         f.collective,
                         f.size_bytes,
                         f.datatype,
                         f.algorithm,
                         f.in_place,
                         f.group_knobs,
                         f.cell_knobs,
                         cell.nodes > 0 ? Value(cell.nodes) : Value{},
                         f.ranks,
                         machines_text(cell.machines),
                         static_cast<std::int64_t>(f.launches.size()),
                         f.median_us()};
  add_bounds(row, f.interval());
  row.push_back(or_null(f.busbw_bytes_per_s()));
  const Placed* base = base_of(cell, cells);
  bool comparable = false;
  const std::string note = note_on(cell, base, comparable);
  row.push_back(base == nullptr ? Value{}
                                : Value(fmt::format("{} ranks on {}, run {}", base->figure.ranks,
                                                    machines_text(base->machines),
                                                    base->figure.run_id.substr(0, 8))));
  if (comparable)
    add_ratio(row, cell, *base);
  else
    row.resize(row.size() + 6);
  row.push_back(or_null(note));
  return row;
}

Table node_scaling_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                         const QueryScope& /*scope*/) {
  std::map<std::string, std::vector<Placed>> work;
  for (const std::int64_t run : runs)
    for (Placed& cell : placed_cells(reader, run)) {
      work[work_key(cell.figure)].push_back(std::move(cell));
    }
  Table table;
  for (auto& [key, cells] : work) {
    std::stable_sort(cells.begin(), cells.end(), [](const Placed& a, const Placed& b) {
      return std::pair(a.nodes, a.figure.ranks) < std::pair(b.nodes, b.figure.ranks);
    });
    for (const Placed& cell : cells) table.rows.push_back(scaling_row(cell, cells));
  }
  return table;
}

}  // namespace

Query node_scaling_query() {
  return {
      .title = "Times over nodes and machines",
      .row =
          "one cell on so many nodes: its time over that of the same cell on the fewest nodes, in "
          "runs that were measured alike, and how much of the bus bandwidth is left",
      .columns = R"(
run_id environment backend architecture collective size_bytes datatype algorithm in_place group_knobs cell_knobs
nodes | integer | machines that the ranks were on
ranks
machines | text, quiet | their names
launches median_us
bus_bytes_per_s | bytes_per_s, real | bus bandwidth as nccl-tests defines it
base | text | what it is compared with: the same cell on the fewest nodes, with as many ranks a node where that was measured, else with as many ranks
ratio
efficiency | real, interval | bus bandwidth over the base's: 1 where further nodes cost nothing
note
)",
      .needs = "the same cells on different numbers of nodes",
      .measured_by = "run experiments/two_nodes.toml --hosts FILE",
      .of_runs = node_scaling_table,
      .every_run = true};
}

}  // namespace dynamiccl
