#include "orchestrator/tune/work_time.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "core/training/training.hpp"

namespace dynamiccl {
namespace {

// How workers wait for each other and what their gradients travel as: parts of a way.
constexpr std::array<std::string_view, 24> kWaySettings{
    "synchronisation", "staleness",   "backups",        "local_steps",   "local_after",
    "topology",        "gossip_pull", "shares",         "slow_momentum", "participants",
    "lag_threshold",   "adapt_every", "elastic",        "group_size",    "switch_to",
    "switch_after",    "compression", "density",        "bits",          "rank",
    "threshold",       "clip",        "error_feedback", "density_warmup"};

}  // namespace

std::string way_text(const WorkCell& cell) {
  if (cell.collective != Collective::training) return "";
  std::string text;
  for (const std::string_view name : kWaySettings) {
    const auto knob = cell.knobs.find(std::string(name));
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
      "(SELECT CASE min(json_extract(w.details_json, '$.target_reached')) WHEN 1 THEN "
      "max(json_extract(w.details_json, '$.trained_us')) WHEN 0 THEN NULL ELSE {0}.median_us END "
      "FROM training w WHERE w.measurement_id = {0}.measurement_row AND w.role = 'worker')",
      view);
}

}  // namespace dynamiccl
