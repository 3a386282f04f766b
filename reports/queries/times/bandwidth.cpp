#include "reports/model/cell_columns.hpp"
#include "reports/model/figures.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

Table bandwidth_table(const std::vector<CellFigure>& figures, const QueryScope&) {
  Table table;
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

}  // namespace

Query bandwidth_query() {
  return {.title = "Bandwidth",
          .row = "one cell: algorithm and bus bandwidth as nccl-tests defines them",
          .columns = R"(
@cell launches
algbw_bytes_per_s | bytes_per_s, real, interval | size over time
busbw_bytes_per_s | bytes_per_s, real, interval | the same times the operation's factor, as nccl-tests has it
)",
          .of_figures = bandwidth_table};
}

}  // namespace dynamiccl
