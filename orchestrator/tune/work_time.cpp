#include "orchestrator/tune/work_time.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "train/spec/training.hpp"

namespace dynamiccl {
namespace {

/// How a cell trains: every setting of training but those of its task.
const std::vector<std::string>& configuration_settings() {
  static const auto names = [] {
    std::vector<std::string> all = training_settings();
    const auto& task = training_task_settings();
    std::erase_if(all, [&](const std::string& name) {
      return std::find(task.begin(), task.end(), name) != task.end();
    });
    return all;
  }();
  return names;
}

}  // namespace

std::string configuration_text(const WorkCell& cell) {
  if (cell.collective != Collective::training) return "";
  std::string text;
  for (const std::string& name : configuration_settings()) {
    const auto knob = cell.knobs.find(name);
    if (knob == cell.knobs.end()) continue;
    const bool plain = name == "synchronisation" || name == "compression";
    text += (text.empty() ? "" : " ") +
            (plain ? knob->second : fmt::format("{}={}", name, knob->second));
  }
  return text;
}

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
      "CASE WHEN EXISTS (SELECT 1 FROM v_time_to_target w WHERE w.measurement_row = "
      "{0}.measurement_row AND w.target_reached IS NOT NULL) THEN (SELECT CASE w.target_reached "
      "WHEN 1 THEN w.trained_us END FROM v_time_to_target w WHERE w.measurement_row = "
      "{0}.measurement_row) ELSE {0}.median_us END",
      view);
}

}  // namespace dynamiccl
