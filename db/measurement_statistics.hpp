#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/wire/record.hpp"

namespace dynamiccl {

/// One cell on one rank in one launch.
struct RankCell {
  int rank = 0;
  const CellRecord* record = nullptr;
};

/// Statistics of one cell in one launch over its measured iterations, microseconds.
struct MeasurementSummary {
  std::int64_t n = 0;
  double median_us = 0;
  double min_us = 0;
  double mean_us = 0;
  std::optional<double> p95_us;  ///< needs 20 iterations
  std::optional<double> p99_us;  ///< needs 100 iterations
  double max_us = 0;
  double mad_us = 0;
  double lag1 = 0;
  std::int64_t outliers = 0;
  bool not_stationary = false;
  std::optional<std::int64_t> settled_at;  ///< measured iterations still in the warm-up
  std::optional<double> collective_us;
  std::optional<double> h2d_us;
  std::optional<double> d2h_us;
  std::optional<double> send_us;
  std::optional<double> compute_us;
  std::optional<double> device_us;
  /// Of its time that the rank which waited most for a core had none, 0 to 1. Like unwaited_us
  /// nullopt where a rank does not know.
  std::optional<double> waited_share;
  /// Median over iterations of the time less what all ranks waited for a core in it: without waits
  /// it would not have been shorter.
  std::optional<double> unwaited_us;
};

/// Outcome of a cell over all ranks.
struct MeasurementOutcome {
  CellStatus status = CellStatus::ok;
  std::string reason;         ///< why not ok
  bool samples_sound = true;  ///< false: the arrays cannot be stored as rows
};

/// The worst of the ranks' outcomes; failed when an element is wrong, when arrays differ in length,
/// hold what is no time, or when ranks disagree on the method.
MeasurementOutcome judge(const std::vector<RankCell>& cells);

/// First the ranks of one iteration become one value, then the iterations one statistic. The
/// components of an iteration are those of the rank that gave its value (with `mean`: the mean of
/// the ranks), so that they sum to its total; of training those of workers, never a server's.
/// @param cells of ranks with sound samples; ranks without samples take no part
/// @returns nullopt when no rank has a measured sample
std::optional<MeasurementSummary> summarise(const std::vector<RankCell>& cells,
                                            RankAggregation aggregation);

}  // namespace dynamiccl
