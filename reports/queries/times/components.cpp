#include <algorithm>

#include "reports/model/cell_columns.hpp"
#include "reports/model/figures.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

Table components_table(const std::vector<CellFigure>& figures, const QueryScope&) {
  Table table;
  for (const auto& f : figures) {
    auto row = cell_values(f);
    append_values(row, {launches_of(f), f.median_us()});
    std::vector<std::optional<double>> parts;
    double named = 0;
    for (const auto component :
         {&LaunchFigure::collective_us, &LaunchFigure::h2d_us, &LaunchFigure::d2h_us,
          &LaunchFigure::send_us, &LaunchFigure::compute_us}) {
      parts.push_back(f.component_us(component));
      named += parts.back().value_or(0);
    }
    // Medians of parts need not sum to the median of the whole: shares of it do.
    const double scale = named > f.median_us() ? f.median_us() / named : 1;
    for (const auto& part : parts)
      append_values(row, {part ? Value(*part * scale) : Value(std::monostate{})});
    append_values(row, {std::max(0.0, f.median_us() - named * scale)});
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

Query components_query() {
  return {.title = "Components",
          .row =
              "one cell: where its time goes; each part of a sample adds up to its time, the "
              "medians of the parts only about to the median of the whole",
          .columns = R"(
@cell launches
median_us | us, real | median over launches of the launches' medians
collective_us h2d_us d2h_us send_us compute_us
other_us | us, real | what none of the parts is
)",
          .of_figures = components_table};
}

}  // namespace dynamiccl
