#pragma once

#include <string>
#include <vector>

#include "core/wire/run_config.hpp"
#include "db/measurement_statistics.hpp"

namespace dynamiccl {

/// How a training cell trains, where that is not as usual: "local local_steps=8"; every setting but
/// those of training_task_settings(). "" for collectives.
std::string configuration_text(const WorkCell& cell);

/// Whether a cell is done when a model reaches an accuracy: its time is the one until then, not a
/// step's.
bool trains_to_target(const WorkCell& cell);

/// What the workers of such a cell took until all had reached the target.
struct TimeToTarget {
  bool reached = false;
  double trained_us = 0;  ///< of the slowest worker, without evaluations
  double accuracy = 0;    ///< at the end, the lowest of the workers
  double steps = 0;       ///< or rounds
};
TimeToTarget time_to_target(const std::vector<RankCell>& cell);

/// SQL of a measurement's time in microseconds: the median call or step; of a cell with a target
/// the time until it was reached, NULL where it was not.
/// @param view alias of a row that has the columns of v_measurement
std::string work_time_sql(const std::string& view);

}  // namespace dynamiccl
