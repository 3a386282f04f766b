#pragma once

#include <optional>
#include <string>
#include <vector>

#include "db/reader.hpp"
#include "reports/model/column.hpp"
#include "reports/model/figures.hpp"

namespace dynamiccl {

/// A row per training cell of one run: medians over the launches that count, the step's interval,
/// and its ratio to the baseline (`ddp` at its best bucket size with the same model, batch, ranks,
/// backend and environment), paired by block, where the cell trains what one process would. No rows
/// when nothing was trained.
/// @param figures of that run
Table training_report(const Reader& reader, std::int64_t run_row,
                      const std::vector<CellFigure>& figures);

/// What trained a workload of one run in the least time a step, of all places of the sum, among
/// those that train what one process would: a round of others is no step.
struct FastestTraining {
  std::string environment;
  std::string backend;
  std::string model;
  std::int64_t batch = 0;
  std::int64_t workers = 0;
  bool of_epochs = false;  ///< some of it trained epochs, so that it has times to an accuracy
  std::string method{};    ///< "": none trained what one process would
  double step_us = 0;
  std::optional<double> over_ddp{};  ///< over the best ddp of as many ranks
};
std::vector<FastestTraining> fastest_trainings(const Reader& reader, std::int64_t run_row,
                                               const std::vector<CellFigure>& figures);

/// What the columns of both tables hold.
Columns training_columns();
/// What of that table fits a screen.
Table training_overview(const Table& report);

}  // namespace dynamiccl
