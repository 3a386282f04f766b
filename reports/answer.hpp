#pragma once

#include <string>
#include <vector>

#include "db/reader.hpp"
#include "reports/figures.hpp"

namespace dynamiccl {

/// The answer for one operation: rows are size, environment and backend.
struct OperationTable {
  std::string title;  ///< "ring allreduce, 2 ranks, float32"
  Table table;
  std::string method;  ///< how the figures were made
};

/// How the figures were made, in one line: what stands under every table and chart.
/// @param figures at least one
std::string figures_method(const std::vector<const CellFigure*>& figures,
                           const BareMetal& bare_metal);

std::vector<OperationTable> operation_tables(const std::vector<CellFigure>& figures);

/// Cells of a run that have no result, by group and reason.
/// @param unsupported true: those that cannot be measured here; false: those that went wrong or are
/// not measured yet
Table cells_without_result(const Reader& reader, const std::string& run_uuid, bool unsupported);

/// "480 cells: 470 ok, 10 unsupported".
std::string cell_counts(const Reader& reader, const std::string& run_uuid);

/// The row key of a run, as load_figures takes it.
std::vector<std::int64_t> run_scope(const Reader& reader, const std::string& run_uuid);

}  // namespace dynamiccl
