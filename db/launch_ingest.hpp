#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "db/measurement_statistics.hpp"
#include "db/rank_clocks.hpp"
#include "db/rows.hpp"

namespace dynamiccl {

/// Writes what the ranks of one launch left. Runs inside the caller's transaction.
class LaunchIngest {
 public:
  struct Launch {
    std::int64_t id = 0;
    std::int64_t run_id = 0;
    std::int64_t group_id = 0;
    int ranks = 1;
    RankAggregation aggregation = RankAggregation::max;
  };
  /// Tells of something odd that is no reason to fail: kind, message.
  using Report = std::function<void(const std::string&, const std::string&)>;

  explicit LaunchIngest(SQLite::Database& db);

  /// Every cell of the group gets a measurement row; one without records inherits the launch's
  /// outcome.
  void store(const Launch& launch, const LaunchEnd& end, const std::vector<RecordFile>& files,
             const Report& report);

 private:
  struct Rank;

  std::vector<Rank> sort_by_rank(const Launch& launch, const std::vector<RecordFile>& files,
                                 const Report& report) const;
  void store_rank(const Launch& launch, int rank, const Rank& data);
  void store_cell(const Launch& launch, const LaunchEnd& end, std::int64_t cell,
                  const std::vector<RankCell>& records, const Report& report);
  std::int64_t insert_measurement(const Launch& launch, std::int64_t cell,
                                  const MeasurementOutcome& outcome,
                                  const std::vector<RankCell>& records);
  void store_training(std::int64_t measurement, int rank, const TrainingFigures& figures);
  void store_samples(std::int64_t measurement, int phase, int rank, const SampleArrays& samples);

  SQLite::Database& db_;
  std::vector<std::optional<RankClock>> clocks_;  ///< by rank, of the launch being stored
  SQLite::Statement cells_;
  SQLite::Statement insert_rank_;
  SQLite::Statement insert_transport_;
  SQLite::Statement insert_measurement_;
  SQLite::Statement insert_sample_;
  SQLite::Statement insert_samples_;
  SQLite::Statement insert_training_;
};

}  // namespace dynamiccl
