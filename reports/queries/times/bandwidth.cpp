#include "reports/model/cell_columns.hpp"
#include "reports/model/figures.hpp"
#include "reports/queries/figure_queries.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {

Table bandwidth_table(const std::vector<CellFigure>& figures, const QueryScope&) {
  Table table;
  add_cell_columns(table);
  for (const char* name :
       {"launches", "algbw_bytes_per_s", "algbw_low_bytes_per_s", "algbw_high_bytes_per_s",
        "busbw_bytes_per_s", "busbw_low_bytes_per_s", "busbw_high_bytes_per_s"}) {
    table.columns.emplace_back(name);
  }
  for (const auto& f : figures) {
    auto row = cell_values(f);
    append_values(row, {launches_of(f)});
    const auto interval = f.interval();
    // Bandwidth comes from the median time.
    const auto at = [&](double time_us, double factor) {
      return static_cast<double>(f.size_bytes) / time_us * 1e6 * factor;
    };
    for (const auto& factor : {std::optional(1.0), f.busbw_factor}) {
      if (!factor || f.median_us() <= 0) {
        append_values(row, {std::monostate{}, std::monostate{}, std::monostate{}});
        continue;
      }
      append_values(row, {at(f.median_us(), *factor)});
      // A long time is a low bandwidth.
      add_bounds(row, interval ? std::optional(Interval{at(interval->high, *factor),
                                                        at(interval->low, *factor),
                                                        interval->confidence, interval->method})
                               : std::nullopt);
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace dynamiccl
