#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/statistics/verdict.hpp"
#include "db/reader.hpp"
#include "reports/model/exchanges.hpp"
#include "reports/model/figures.hpp"

namespace dynamiccl {

/// A training cell that ends at a target accuracy: by that lossy and lossless training are ranked
/// together.
struct TargetCell {
  /// Its launches are those that reached the target, with the time until then in place of a step's:
  /// of the slowest worker, without evaluations.
  CellFigure figure;
  TrainedCell cell;
  double target = 0;
  std::string task;          ///< of v_training: equal where times compare
  bool as_one = true;        ///< trains what one process would
  bool plain = true;         ///< plain SGD
  std::size_t launches = 0;  ///< that count, whether they reached it or not
  [[nodiscard]] bool always_reached() const { return figure.launches.size() == launches; }
};

std::vector<TargetCell> target_cells(const Reader& reader, std::int64_t run_row);

/// "bsp-a2a local, local_steps 8": a method with how its workers wait and what gradients travel as.
std::string configuration_words(const CellFigure& figure);

/// A workload as saturation is judged: where, what and by how many.
struct TrainedPlace {
  std::string environment;
  std::string backend;
  std::string model;
  std::int64_t batch = 0;
  std::int64_t workers = 0;
};

/// The target_cells() of a database's runs, each read when it is first asked for.
class MeasuredTargets {
 public:
  explicit MeasuredTargets(const Reader& reader) : reader_(reader) {}
  const std::vector<TargetCell>& of(std::int64_t run_row);
  /// Rows of runs with such cells, the newest first.
  const std::vector<std::int64_t>& runs();

 private:
  const Reader& reader_;
  std::map<std::int64_t, std::vector<TargetCell>> cells_;
  std::optional<std::vector<std::int64_t>> runs_;
};

/// Which lossy configuration was measured to reach a target accuracy surely sooner than the fastest
/// plain SGD in the same place, the best of all that were tested together, in the given run or,
/// where that has none, in the newest other run of the database whose ranks detected the same
/// regime; that none was, or that none was measured.
std::string measured_help(MeasuredTargets& measured, std::int64_t run_row,
                          const TrainedPlace& place, const std::set<std::string>& regimes);

}  // namespace dynamiccl
