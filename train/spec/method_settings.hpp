#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "train/spec/training_method.hpp"

namespace dynamiccl {

/// Whether a setting of training cells says anything to a method. Of the settings that belong to
/// some orders of sending and groupings alone; every other one is the cell's.
constexpr bool takes_setting(const TrainingMethodRow& row, std::string_view setting) {
  if (setting == "credit") return row.order == SendOrder::by_urgency;
  if (setting == "merge") return row.grouping == MessageGrouping::merged;
  if (setting == "bucket")
    return row.grouping == MessageGrouping::buckets || row.grouping == MessageGrouping::filled;
  return true;
}

/// The names of the methods that take it.
inline std::vector<std::string> methods_that_take(std::string_view setting) {
  std::vector<std::string> names;
  for (const TrainingMethodRow& row : kTrainingMethods)
    if (takes_setting(row, setting)) names.emplace_back(row.name);
  return names;
}

}  // namespace dynamiccl
