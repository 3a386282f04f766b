#include <algorithm>
#include <map>

#include "core/statistics/statistics.hpp"
#include "reports/model/cell_columns.hpp"
#include "reports/model/change_points.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

/// A cell in one run, by the library that moved its data.
struct Moment {
  CellFigure figure;
  std::string started;
  std::string library;
};

/// "openmpi-4.1.4" of the groups of a run, by group_key().
std::map<std::string, std::string> libraries_of(const Reader& reader, std::int64_t run) {
  const Table table = reader.query(
      "SELECT v.run_id, v.environment, v.backend, v.architecture, v.ranks, v.group_knobs, "
      "group_concat(DISTINCT k.library) AS library FROM v_launch v JOIN launch_rank k ON "
      "k.launch_id = v.launch_row WHERE v.run_row = ?1 AND v.launch_status = 'ok' GROUP BY "
      "v.group_row",
      {run});
  const TableView rows(table);
  std::map<std::string, std::string> libraries;
  for (std::size_t i = 0; i < rows.size(); ++i)
    libraries[group_key(group_figure(rows, i))] = rows.text(i, "library");
  return libraries;
}

void add_rows(Table& table, const std::vector<Moment>& moments) {
  std::vector<double> times;
  for (const auto& moment : moments) times.push_back(moment.figure.median_us());
  auto bounds = change_points(times);
  bounds.insert(bounds.begin(), 0);
  bounds.push_back(times.size());
  std::optional<double> before;
  for (std::size_t stretch = 0; stretch + 1 < bounds.size(); ++stretch) {
    using Offset = std::ptrdiff_t;
    const double level = median({times.begin() + static_cast<Offset>(bounds[stretch]),
                                 times.begin() + static_cast<Offset>(bounds[stretch + 1])});
    for (std::size_t i = bounds[stretch]; i < bounds[stretch + 1]; ++i) {
      const auto& [figure, started, library] = moments[i];
      auto row = cell_values(figure);
      append_values(row, {started, or_null(library), launches_of(figure), figure.median_us()});
      add_bounds(row, figure.interval());
      append_values(row, {static_cast<std::int64_t>(stretch + 1), level});
      const bool changes = before && i == bounds[stretch];
      row.push_back(or_null(changes ? std::optional(level / *before) : std::nullopt));
      row.push_back(or_null(!changes ? "" : level > *before ? "SLOWER" : "FASTER"));
      table.rows.push_back(std::move(row));
    }
    before = level;
  }
}

Table history_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                    const QueryScope& /*scope*/) {
  std::map<std::string, std::vector<Moment>> cells;
  std::vector<std::string> order;
  for (const std::int64_t run : runs) {
    auto figures = load_figures(reader, {run});
    if (figures.empty()) continue;
    const Table about = reader.query("SELECT started_utc FROM run WHERE id = ?1", {run});
    const auto libraries = libraries_of(reader, run);
    for (auto& figure : figures) {
      CellFigure any_run = figure;
      any_run.run_id.clear();
      const std::string key = key_without(any_run, "") + "\n" + joined_names(figure.regimes);
      if (cells[key].empty()) order.push_back(key);
      const auto library = libraries.find(group_key(figure));
      cells[key].push_back({std::move(figure), TableView(about).text(0, "started_utc"),
                            library == libraries.end() ? "" : library->second});
    }
  }
  Table table;
  for (const auto& key : order) {
    auto& moments = cells.at(key);
    if (moments.size() < 2) continue;
    std::ranges::stable_sort(moments, {}, &Moment::started);
    add_rows(table, moments);
  }
  return table;
}

}  // namespace

Query history_query() {
  return {.title = "A cell over all runs",
          .row =
              "one cell in one regime in one run, of those that several runs measured, in the "
              "order of time",
          .columns = R"(
@cell
started_utc | text | when the run began
library | text, quiet | the library's version, as the ranks saw it
launches median_us
stretch | integer | part of the history between two changes, from 1
stretch_us | us, real | median over the runs of this stretch
change | real, optional | of the first run of a stretch: its level over that of the stretch before
verdict | text, optional | of that change: FASTER or SLOWER
)",
          .method =
              "a change: the mean logarithms of the runs before and after it differ by more "
              "than in 99 of 100 orders of the same runs, three runs on each side at least",
          .needs = "the same cells in two runs, six for a change: start one experiment again",
          .measured_by = "run experiments/quickstart.toml",
          .of_runs = history_table,
          .every_run = true};
}

}  // namespace dynamiccl
