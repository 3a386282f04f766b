#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "db/reader.hpp"
#include "reports/figures.hpp"
#include "reports/reports.hpp"

namespace dynamiccl {

/// A value of --where as it is stored: "64KiB" as bytes, "true" of in_place as "1".
/// @throws Error(input) where the column can have no such value
std::string stored_value(const std::string& column, const std::string& wanted);

/// Keeps figures whose axes have the values asked for.
/// @throws Error(input) for an unknown axis, and as stored_value
std::vector<CellFigure> filter_figures(std::vector<CellFigure> figures, const QueryScope& scope);

/// All settings of a figure, "" where it has none but the library's own.
std::string knobs_of(const CellFigure& figure);
/// What was chosen for it: backend, architecture, algorithm and settings.
std::string choice_of(const CellFigure& figure);

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
/// A row per cell on bare metal and published ranking of two of its backends or more: is the order
/// the same here (C-12, C-13; C-14: gather, where the published order is another one)?
Table rankings_table(const std::vector<CellFigure>& figures, const QueryScope& scope);
/// A row per line: T(size) = alpha + size / bandwidth over all sizes, and per piece where one line
/// does not do, with intervals from fits of each block and the fit's own error.
Table fit_table(const std::vector<CellFigure>& figures, const QueryScope& scope);
/// The rule behind that table.
std::string fit_method();
/// A row per pair of values of the axis --vary and size at which the faster becomes the slower; the
/// bounds are the nearest measured sizes at which each is surely faster. Architectures are compared
/// as exchanges at equal workers.
Table crossover_table(const std::vector<CellFigure>& figures, const QueryScope& scope);

/// The size at which two are equally fast: where the logarithm of their ratio is zero, on a line
/// between the neighbours that it changes sign between, sizes on a logarithmic scale. Rounded to
/// what a few sizes can tell; the last size where the sign never changes.
/// @param log_ratios size in bytes and logarithm of the ratio, sizes rising, not empty
double equal_size(const std::vector<std::pair<std::int64_t, double>>& log_ratios);

/// A row per framework, library or device that the studies name, and what of it runs here (C-09,
/// C-10, C-16, C-40 to C-44).
Table catalogue_table();

/// Every table and view with its columns, types and comments.
Table schema_table(const Reader& reader);

}  // namespace dynamiccl
