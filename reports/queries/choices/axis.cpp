#include "reports/model/alternatives.hpp"
#include "reports/model/cell_columns.hpp"
#include "reports/model/figures.hpp"
#include "reports/queries/choices/axis_rows.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

Table axis_table(const std::vector<CellFigure>& given, const QueryScope& scope) {
  const std::string& axis = scope.vary;
  axis_value(CellFigure{}, axis);  // refuses an unknown one
  const auto figures = axis == "backend" ? with_stated_memory(given) : given;
  const auto values = axis_values(figures, axis);
  Table table;
  table.columns = {"run_id"};
  for (const auto& name : axis_names())
    if (name != axis) table.columns.push_back(name);
  for (auto& name : value_columns(axis, values)) table.columns.push_back(std::move(name));
  if (is_choice(axis))
    table.columns.insert(table.columns.end(), {"winner", "winner_is_sure", "cadence"});
  auto groups = alternatives_along(figures, axis);
  judge_leads(groups);
  for (const auto& group : groups) table.rows.push_back(axis_row(group, axis, values));
  return table;
}

}  // namespace

Query axis_query() {
  return {
      .title = "One axis, all others fixed",
      .row =
          "cells that differ in one axis only (--vary), side by side with the winner, the one of "
          "the lowest median; whether that is sure is judged by the typical ratio of launches",
      .columns = R"(
run_id environment backend architecture collective size_bytes ranks datatype algorithm in_place group_knobs cell_knobs
* | us, real | median time with this value of the axis --vary, a column for each
winner winner_is_sure cadence
)",
      .method = verdict_method(),
      .takes_vary = true,
      .needs = "cells that differ in the axis of --vary alone",
      .of_figures = axis_table};
}

}  // namespace dynamiccl
