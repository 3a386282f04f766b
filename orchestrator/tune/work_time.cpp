#include "orchestrator/tune/work_time.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/training/training.hpp"

namespace dynamiccl {

bool trains_to_target(const WorkCell& cell) {
  return cell.collective == Collective::training && training_spec(cell).target > 0;
}

TimeToTarget time_to_target(const std::vector<RankCell>& cell) {
  TimeToTarget time;
  bool all = true;
  for (const RankCell& one : cell) {
    if (!one.record->training || one.record->training->role != "worker") continue;
    const nlohmann::json& details = one.record->training->details;
    all = all && details.value("target_reached", false);
    time.reached = all;
    time.trained_us = std::max(time.trained_us, details.value("trained_us", 0.0));
    time.accuracy = one.record->training->accuracy;  // all ranks agreed on the lowest
    const auto looks = details.find("accuracies");
    if (looks != details.end() && !looks->empty()) time.steps = looks->back().at(0);
  }
  return time;
}

std::string work_time_sql(const std::string& view) {
  return fmt::format(
      "(SELECT CASE min(json_extract(w.details_json, '$.target_reached')) WHEN 1 THEN "
      "max(json_extract(w.details_json, '$.trained_us')) WHEN 0 THEN NULL ELSE {0}.median_us END "
      "FROM training w WHERE w.measurement_id = {0}.measurement_row AND w.role = 'worker')",
      view);
}

}  // namespace dynamiccl
