#pragma once

#include <functional>
#include <string>
#include <vector>

#include "db/reader.hpp"
#include "reports/figures.hpp"
#include "reports/reports.hpp"

namespace dynamiccl {

/// Keeps figures whose axes have the values asked for.
/// @throws Error(input) for an unknown axis
std::vector<CellFigure> filter_figures(std::vector<CellFigure> figures, const QueryScope& scope);

/// Columns that name a figure's cell, in the order of the tables.
void add_cell_columns(Table& table);
/// The values of those columns.
std::vector<Value> cell_values(const CellFigure& figure);

Table latency_table(const std::vector<CellFigure>& figures, const QueryScope& scope);
Table overhead_table(const std::vector<CellFigure>& figures, const QueryScope& scope);
Table bandwidth_table(const std::vector<CellFigure>& figures, const QueryScope& scope);
Table components_table(const std::vector<CellFigure>& figures, const QueryScope& scope);
/// With the path that the copies' share tells of (B-25): inferred, from this share on.
inline constexpr double kStagedFromPercent = 10;
Table copy_share_table(const std::vector<CellFigure>& figures, const QueryScope& scope);
std::string copy_path_method();
Table best_table(const std::vector<CellFigure>& figures, const QueryScope& scope);
Table axis_table(const std::vector<CellFigure>& figures, const QueryScope& scope);
/// A row per factor, environment, collective and size class: who surely wins how often (G-12).
Table findings_table(const std::vector<CellFigure>& figures, const QueryScope& scope);
/// A row per cell of NCCL that Gloo measured too: is it slower than that floor (G-16, E-141)?
Table floor_table(const std::vector<CellFigure>& figures, const QueryScope& scope);
/// A row per line: T(size) = alpha + size / bandwidth over all sizes, and per piece where one line
/// does not do, with intervals from fits of each block and the fit's own error.
Table fit_table(const std::vector<CellFigure>& figures, const QueryScope& scope);
/// A row per pair of values of the axis --vary and size at which the faster becomes the slower; the
/// bounds are the nearest measured sizes at which each is surely faster.
Table crossover_table(const std::vector<CellFigure>& figures, const QueryScope& scope);

/// Every table and view with its columns, types and comments.
Table schema_table(const Reader& reader);

}  // namespace dynamiccl
