#include "reports/model/cell_columns.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

Table latency_table(const std::vector<CellFigure>& figures, const QueryScope&) {
  Table table;
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

}  // namespace

Query latency_query() {
  return {.title = "Latency",
          .row = "one cell: median of its launch medians with the interval over launches",
          .columns = R"(
@cell launches median_us interval_method cadence drifting
)",
          .of_figures = latency_table};
}

}  // namespace dynamiccl
