#pragma once

#include <string>
#include <vector>

#include "db/table.hpp"
#include "reports/model/column.hpp"
#include "reports/model/figures.hpp"

namespace dynamiccl {

/// The figures of one operation: rows are size, environment and backend.
struct OperationTable {
  std::string title;  ///< "ring allreduce, 2 ranks, float32"
  Table table;
  std::string method;  ///< how the figures were made
};

/// What the columns of such a table hold.
Columns operation_columns();

std::vector<OperationTable> operation_tables(const std::vector<CellFigure>& figures);

}  // namespace dynamiccl
