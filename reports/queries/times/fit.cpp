#include "core/vocabulary/text.hpp"
#include "reports/model/cell_columns.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/fits.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

std::vector<Value> fit_row(const CellFigure& example, const FittedLine& line) {
  auto row = cell_values(example);
  row.erase(row.begin() + static_cast<std::ptrdiff_t>(5));  // size_bytes: a line has many
  row.emplace_back(line.model);
  row.emplace_back(static_cast<std::int64_t>(line.from.count()));
  row.emplace_back(static_cast<std::int64_t>(line.to.count()));
  row.emplace_back(static_cast<std::int64_t>(line.sizes));
  row.emplace_back(static_cast<std::int64_t>(line.blocks));
  row.emplace_back(line.fit.alpha.count());
  add_bounds(row, line.alpha_us);
  row.push_back(or_null(line.bytes_per_s));
  add_bounds(row, line.bytes_per_s_range);
  row.emplace_back(line.fit.beta_us_per_byte);
  row.push_back(line.error ? Value{100 * *line.error} : Value{});
  row.push_back(or_null(join({line.cadences.begin(), line.cadences.end()}, ", ")));
  return row;
}

std::string fit_method() {
  return "method: time = alpha + size / bandwidth, least squares of the relative residuals of the "
         "launches' medians; neither parameter below 0, so that a line of two sizes may miss them; "
         "a "
         "further piece must pay for its two parameters (BIC); 95 % intervals from fits of each "
         "block (signed ranks from six blocks on, t below), none over sizes timed by different "
         "cadences: calls back to back (batched) start sooner than a call alone (isolated)";
}

Table fit_table(const std::vector<CellFigure>& figures, const QueryScope&) {
  Table table;
  for (const auto& curve : fit_curves(figures)) {
    for (const auto& line : curve.lines) table.rows.push_back(fit_row(curve.example, line));
  }
  return table;
}

}  // namespace

Query fit_query() {
  return {.title = "Start-up time and bandwidth",
          .row =
              "one line of time over size: alpha + size / bandwidth, over all sizes and by pieces, "
              "with its error",
          .columns = R"(
run_id environment backend architecture collective ranks datatype algorithm in_place group_knobs cell_knobs regime
model | text | one line, or which piece of how many
from_bytes | bytes, integer, exact | the smallest size of the line
to_bytes | bytes, integer, exact | the largest
sizes | integer | sizes on the line
blocks | integer | rounds that have all of them
alpha_us | us, real, interval | start-up time
bandwidth_bytes_per_s | bytes_per_s, real, interval | of the line's slope
beta_us_per_byte | real | the slope, microseconds per byte
error_percent | percent, real | root mean square of the medians' distances from the line
cadence
)",
          .method = fit_method(),
          .needs = "more than one size of an operation",
          .of_figures = fit_table};
}

}  // namespace dynamiccl
