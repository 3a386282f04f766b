#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "reports/model/figures.hpp"

namespace dynamiccl {

/// Column = value, all must hold: {"backend", "openmpi"}. Sizes may be written "64KiB".
using CellConditions = std::vector<std::pair<std::string, std::string>>;

/// The column that a condition means: "size" as experiments call it is size_bytes.
std::string column_called(const std::string& name);

/// A value of a condition as it is stored: "64KiB" as bytes, "true" of in_place as "1".
/// @throws Error(input) where the column can have no such value
std::string stored_value(const std::string& column, const std::string& wanted);

/// Keeps figures whose axes have the values asked for.
/// @throws Error(input) for an unknown axis, and as stored_value
std::vector<CellFigure> filter_figures(std::vector<CellFigure> figures,
                                       const CellConditions& where);

/// All settings of a figure, "" where it has none but the library's own.
std::string knobs_of(const CellFigure& figure);
/// What was chosen for it: backend, architecture, algorithm and settings.
std::string choice_of(const CellFigure& figure);

/// The values of the columns that name a figure's cell ("@cell" of column.hpp).
std::vector<Value> cell_values(const CellFigure& figure);
/// How many launches of it count.
std::int64_t launches_of(const CellFigure& figure);

void append_values(std::vector<Value>& row, std::vector<Value> more);
/// "batched, isolated"
std::string joined_names(const std::set<std::string>& texts);

}  // namespace dynamiccl
