#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "reports/model/figures.hpp"
#include "train/spec/synchronisation.hpp"

namespace dynamiccl {

/// What a cell of collective "training" trains.
struct TrainedCell {
  std::string model;         ///< "" where it is not stored
  std::int64_t batch = 0;    ///< samples per worker and step; 0 where it is not stored
  std::int64_t workers = 0;  ///< ranks that compute
  nlohmann::json settings;   ///< of the method: an object without model and batch
};
TrainedCell trained_cell(const CellFigure& figure);
/// When its workers waited for each other, by the cell's settings.
Synchronisation synchronisation_in(const nlohmann::json& settings);
/// Whether the cell trained what one process would: what is ranked by step time.
bool trained_as_one(const CellFigure& figure);
/// Whether that is plain SGD, without LARS and a warm-up of the rate: what accuracies are
/// compared with.
bool is_plain_sgd(const CellFigure& figure);
/// Whether its time alone says that it is better: not of training that loses something.
bool compares_by_time(const CellFigure& figure);

/// For comparisons of architectures: what a server and a ring both do, under one name and with
/// `ranks` that are workers: gradients of all are summed and everybody has them ("exchange":
/// push_pull, allreduce), a step is trained (methods without -ps and -a2a), ranks start (no
/// collective). What else there is, is left out.
std::vector<CellFigure> as_exchanges(const std::vector<CellFigure>& figures);

}  // namespace dynamiccl
