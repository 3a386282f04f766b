#include <map>
#include <tuple>

#include "core/statistics/statistics.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

/// What a cell's launches gave, in the order of the table: a line of a chart, then its points.
struct Scaled {
  std::vector<double> speedups;
  double workers = 0;
  std::string carried_by;  ///< the library that moved the gradients
};
/// Run, environment, backend, model, batch, method, settings; nodes, ranks.
using Key =
    std::tuple<std::string, decltype(environment_order("")), std::string, std::string, std::int64_t,
               std::string, std::string, std::int64_t, std::int64_t, std::string>;

void load(const Reader& reader, std::int64_t run, std::map<Key, Scaled>& cells) {
  // A round, or a server's answer, is no step that could be compared with one worker's.
  const Table table = reader.query(
      "SELECT t.*, coalesce(json_array_length(l.container_json, '$.cluster.nodes'), 1) AS nodes, "
      "(SELECT w.carried_by FROM v_training_rank w "
      "WHERE w.measurement_row = t.measurement_row AND w.first_worker) AS carried_by, "
      "(SELECT g.knobs_json FROM plan_group g WHERE g.id = l.group_id) AS group_knobs "
      "FROM v_training t JOIN launch l ON l.uuid = t.launch_id "
      "WHERE t.run_row = ?1 AND t.counts AND t.trained_as_one AND t.single_us > 0",
      {run});
  const TableView rows(table);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string environment = rows.text(i, "environment");
    auto& cell =
        cells[Key{rows.text(i, "run_id"), environment_order(environment), environment,
                  rows.text(i, "backend") + "\n" + rows.text(i, "model"), rows.integer(i, "batch"),
                  rows.text(i, "method"), rows.text(i, "settings"), rows.integer(i, "nodes"),
                  rows.integer(i, "ranks"), rows.text(i, "group_knobs")}];
    cell.workers = rows.real(i, "workers").value_or(0);
    cell.carried_by = rows.text(i, "carried_by");
    if (const auto speedup = rows.real(i, "speedup")) cell.speedups.push_back(*speedup);
  }
}

void add_figure(std::vector<Value>& row, std::vector<double> values, double divisor) {
  for (double& value : values) value /= divisor;
  row.emplace_back(median(values));
  add_bounds(row, launch_interval(values));
}

Table scaling_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                    const QueryScope& /*scope*/) {
  std::map<Key, Scaled> cells;
  for (const std::int64_t run : runs) load(reader, run, cells);
  Table table;
  for (const auto& [key, cell] : cells) {
    const auto& [run, order, environment, backend_and_model, batch, method, settings, nodes, ranks,
                 group_knobs] = key;
    if (cell.speedups.empty()) continue;
    const auto line = backend_and_model.find('\n');
    std::vector<Value> row{run,
                           environment,
                           backend_and_model.substr(0, line),
                           or_null(cell.carried_by),
                           backend_and_model.substr(line + 1),
                           batch,
                           method,
                           settings,
                           nodes,
                           ranks,
                           group_knobs,
                           static_cast<std::int64_t>(cell.workers),
                           static_cast<std::int64_t>(cell.speedups.size())};
    add_figure(row, cell.speedups, 1);
    add_figure(row, cell.speedups, static_cast<double>(ranks));
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

Query scaling_query() {
  return {.title = "Scaling of training",
          .row =
              "one model, batch, method and setting on so many nodes and ranks: throughput over "
              "one worker's in the same launch, and that over the ranks",
          .columns = R"(
run_id environment backend
carried_by | text | the library that moved the gradients
model batch method settings
nodes | integer | machines that the ranks were on
ranks group_knobs workers launches speedup
efficiency | real, interval | speed-up over ranks, servers among them: 1 where every rank adds a worker's throughput
)",
          .of_runs = scaling_table};
}

}  // namespace dynamiccl
