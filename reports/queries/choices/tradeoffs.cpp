#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "core/vocabulary/error.hpp"
#include "reports/model/exchanges.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/choices/axis_rows.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

constexpr std::string_view kStartUp = "start-up";

/// The figures with the 95th percentile of each launch in place of its median. Launches with too
/// few iterations have none.
std::vector<CellFigure> tails(const Reader& reader, std::int64_t run,
                              const std::vector<CellFigure>& figures) {
  const Table table = reader.query(
      "SELECT run_id, environment, backend, architecture, collective, size_bytes, ranks, datatype, "
      "algorithm, in_place, group_knobs, cell_knobs, block, p95_us FROM v_measurement "
      "WHERE run_row = ?1 AND counts AND p95_us IS NOT NULL",
      {run});
  const TableView rows(table);
  std::map<std::pair<std::string, std::int64_t>, double> tail_of;
  for (std::size_t i = 0; i < rows.size(); ++i)
    tail_of[{key_without(figure_cell(rows, i), ""), rows.integer(i, "block")}] =
        rows.real(i, "p95_us").value_or(0);
  std::vector<CellFigure> result;
  for (CellFigure figure : figures) {
    const auto key = key_without(figure, "");
    std::erase_if(figure.launches, [&](const LaunchFigure& l) {
      return !tail_of.contains({key, l.block});
    });
    for (auto& launch : figure.launches) launch.median_us = tail_of.at({key, launch.block});
    if (!figure.launches.empty()) result.push_back(std::move(figure));
  }
  return result;
}

/// One figure per group: from the start of its first process until its last rank is connected.
std::vector<CellFigure> start_ups(const Reader& reader, std::int64_t run) {
  const Table table = reader.query(
      "SELECT v.run_id, v.environment, v.backend, v.architecture, '' AS collective, 0 AS "
      "size_bytes, v.ranks, '' AS datatype, '' AS algorithm, 0 AS in_place, v.group_knobs, '{}' AS "
      "cell_knobs, v.group_row, v.block, 1e6 * (max(k.ready_unix_s) - min(k.started_unix_s)) AS us "
      "FROM v_launch v JOIN launch_rank k ON k.launch_id = v.launch_row "
      "WHERE v.run_row = ?1 AND v.launch_status = 'ok' GROUP BY v.launch_row "
      "HAVING us > 0 ORDER BY v.group_row, v.block",
      {run});
  const TableView rows(table);
  std::vector<CellFigure> figures;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i == 0 || rows.integer(i, "group_row") != rows.integer(i - 1, "group_row"))
      figures.push_back(figure_cell(rows, i));
    LaunchFigure launch;
    launch.block = rows.integer(i, "block");
    launch.median_us = rows.real(i, "us").value_or(0);
    figures.back().launches.push_back(launch);
  }
  return figures;
}

/// What is compared, with its figures.
struct Aspect {
  std::string name;
  std::vector<CellFigure> figures;
};

std::vector<Aspect> aspects_of(const Reader& reader, std::int64_t run, const std::string& vary) {
  const auto loaded = load_figures(reader, {run});
  const auto prepared = [&](std::vector<CellFigure> figures) {
    if (vary == "architecture") return as_exchanges(figures);
    return vary == "backend" ? with_stated_memory(std::move(figures)) : figures;
  };
  std::vector<Aspect> aspects;
  aspects.push_back({"time", prepared(loaded)});
  aspects.push_back({"95th percentile", prepared(tails(reader, run, loaded))});
  aspects.push_back({std::string(kStartUp), prepared(start_ups(reader, run))});
  return aspects;
}

Table tradeoffs_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                      const QueryScope& scope) {
  constexpr std::array<std::string_view, 6> kChoices{"environment", "backend",     "architecture",
                                                     "algorithm",   "group_knobs", "cell_knobs"};
  if (std::find(kChoices.begin(), kChoices.end(), scope.vary) == kChoices.end())
    throw Error(ErrorKind::input,
                fmt::format("tradeoffs: --vary {}: that is no choice; one of environment, backend, "
                            "architecture, algorithm, group_knobs, cell_knobs",
                            scope.vary));
  std::vector<Aspect> aspects;
  for (const std::int64_t run : runs)
    for (auto& aspect : aspects_of(reader, run, scope.vary)) aspects.push_back(std::move(aspect));
  std::vector<CellFigure> all;
  std::vector<Alternatives> groups;
  for (const auto& aspect : aspects) {
    all.insert(all.end(), aspect.figures.begin(), aspect.figures.end());
    for (auto& group : alternatives_along(aspect.figures, scope.vary)) {
      group.aspect = aspect.name;
      groups.push_back(std::move(group));
    }
  }
  judge_leads(groups);
  const auto values = axis_values(all, scope.vary);
  Table table;
  table.columns = {"run_id"};
  for (const auto& name : axis_names()) {
    if (name == scope.vary) continue;
    table.columns.push_back(scope.vary == "architecture" && name == "ranks" ? "workers" : name);
    if (name == "collective") table.columns.emplace_back("aspect");
  }
  for (auto& name : value_columns(scope.vary, values)) table.columns.push_back(std::move(name));
  table.columns.insert(table.columns.end(), {"winner", "winner_is_sure", "cadence"});
  const auto collective = *column_index(table, "collective");
  const auto behind = static_cast<std::ptrdiff_t>(collective) + 1;
  for (const auto& group : groups) {
    auto row = axis_row(group, scope.vary, values);
    // Starting up is of no collective.
    row[collective] = or_null(group.cells.front()->collective);
    row.insert(row.begin() + behind, Value(group.aspect));
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

Query tradeoffs_query() {
  return {.title = "Trade-offs",
          .row =
              "one operation, size and aspect (time, 95th percentile, start-up): the values of "
              "--vary side by side with the winner; architectures at equal workers",
          .columns = R"(
run_id environment backend architecture collective
aspect | text | what is compared: time, 95th percentile of the iterations, or start-up of the processes
size_bytes ranks workers datatype algorithm in_place group_knobs cell_knobs
* | us, real | median time with this value of the axis --vary, a column for each
winner winner_is_sure cadence
)",
          .method = verdict_method(),
          .takes_vary = true,
          .needs = "cells that differ in the axis of --vary alone",
          .of_runs = tradeoffs_table};
}

}  // namespace dynamiccl
