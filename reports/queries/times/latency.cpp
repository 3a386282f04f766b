#include "reports/model/cell_columns.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/figure_queries.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {

Table latency_table(const std::vector<CellFigure>& figures, const QueryScope&) {
  Table table;
  add_cell_columns(table);
  for (const char* name : {"launches", "median_us", "median_low_us", "median_high_us",
                           "interval_method", "cadence", "drifting"}) {
    table.columns.emplace_back(name);
  }
  for (const auto& f : figures) {
    auto row = cell_values(f);
    const auto interval = f.interval();
    append_values(row, {launches_of(f), f.median_us()});
    add_bounds(row, interval);
    append_values(row, {or_null(interval ? interval->method : ""),
                        or_null(joined_names(f.cadences)), f.drifting});
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace dynamiccl
