#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "db/reader.hpp"
#include "reports/model/figures.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {

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

/// A row per group: do its launches depend on their order?
Table independence_table(const std::vector<CellFigure>& figures, const QueryScope& scope);

/// A row per framework, library or device that the studies name, and what of it runs here (C-09,
/// C-10, C-16, C-40 to C-44).
Table catalogue_table();

/// Every table and view with its columns, types and comments.
Table schema_table(const Reader& reader);

}  // namespace dynamiccl
