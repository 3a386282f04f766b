#pragma once

#include <vector>

#include "db/reader.hpp"
#include "reports/model/column.hpp"
#include "reports/model/figures.hpp"

namespace dynamiccl {

/// A row per training cell of one run: medians over the launches that count, the step's interval,
/// and its ratio to the baseline (`ddp` at its best bucket size with the same model, batch, ranks,
/// backend and environment), paired by block. No rows when nothing was trained.
/// @param figures of that run
Table training_report(const Reader& reader, std::int64_t run_row,
                      const std::vector<CellFigure>& figures);

/// What the columns of both tables hold.
Columns training_columns();
/// What of that table fits a screen.
Table training_overview(const Table& report);

}  // namespace dynamiccl
