#include "reports/model/target_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "reports/model/table_view.hpp"

namespace dynamiccl {
namespace {

/// What must be equal for two times to be compared.
std::string task_of(const nlohmann::json& settings) {
  std::string task;
  for (const char* name : {"data", "samples", "target", "looks", "pace", "slow_factor",
                           "slow_worker", "sequence", "precision"})
    if (const auto found = settings.find(name); found != settings.end())
      task += fmt::format("{}={} ", name,
                          found->is_string() ? found->get<std::string>() : found->dump());
  return task;
}

double target_of(const nlohmann::json& settings) {
  const auto found = settings.find("target");
  if (found == settings.end()) return 0;
  return std::strtod((found->is_string() ? found->get<std::string>() : found->dump()).c_str(),
                     nullptr);
}

/// The cells of one workload by their task: times of different ones do not compare.
std::map<std::string, std::vector<const TargetCell*>> tasks_in(const std::vector<TargetCell>& cells,
                                                               const TrainedPlace& place) {
  std::map<std::string, std::vector<const TargetCell*>> tasks;
  for (const TargetCell& one : cells)
    if (one.figure.environment == place.environment && one.figure.backend == place.backend &&
        one.cell.model == place.model && one.cell.batch == place.batch &&
        one.cell.workers == place.workers)
      tasks[one.task].push_back(&one);
  return tasks;
}

const TargetCell* fastest(const std::vector<const TargetCell*>& cells, bool as_one) {
  const TargetCell* best = nullptr;
  for (const TargetCell* one : cells) {
    if (one->as_one != as_one || one->figure.launches.empty() || !one->always_reached()) continue;
    if (best == nullptr || one->figure.median_us() < best->figure.median_us()) best = one;
  }
  return best;
}

/// What the cells of one task say; nullopt where there is nothing to compare.
std::optional<std::string> help_in(const std::vector<const TargetCell*>& cells) {
  const TargetCell* plain = fastest(cells, true);
  const auto lossy =
      std::count_if(cells.begin(), cells.end(), [](const TargetCell* one) { return !one->as_one; });
  if (plain == nullptr || lossy == 0) return std::nullopt;
  const TargetCell* best = fastest(cells, false);
  const double target = plain->target;
  if (best != nullptr) {
    const Ratio ratio = time_ratio_anyway(best->figure, plain->figure);
    if (ratio.value < 1 && ratio.interval && ratio.interval->high < 1)
      return fmt::format(
          "measured here: {} takes {:.3g} [{:.3g}, {:.3g}] of {}'s time to accuracy {:g} ({} "
          "launches)",
          way_words(best->figure), ratio.value, ratio.interval->low, ratio.interval->high,
          plain->figure.algorithm, target, best->figure.launches.size());
  }
  return fmt::format(
      "none of {} lossy way{} that {} measured here reaches accuracy {:g} surely "
      "sooner than {}",
      lossy, lossy == 1 ? "" : "s", lossy == 1 ? "was" : "were", target, plain->figure.algorithm);
}

std::optional<std::string> help_in_run(const std::vector<TargetCell>& cells,
                                       const TrainedPlace& place) {
  std::optional<std::string> found;
  for (const auto& [task, alike] : tasks_in(cells, place)) {
    auto text = help_in(alike);
    if (text && (!found || text->starts_with("measured"))) found = std::move(text);
  }
  return found;
}

}  // namespace

std::vector<TargetCell> target_cells(const Reader& reader, std::int64_t run_row) {
  const Table table = reader.query(
      "SELECT m.run_id, m.environment, m.backend, m.architecture, m.collective, m.size_bytes, "
      "m.ranks, m.datatype, m.algorithm, m.in_place, m.group_knobs, m.cell_knobs, m.block, "
      "m.regime_name AS regime, min(json_extract(t.details_json, '$.target_reached')) AS reached, "
      "max(json_extract(t.details_json, '$.trained_us')) AS trained_us "
      "FROM v_training v JOIN v_measurement m ON m.measurement_row = v.measurement_row "
      "JOIN training t ON t.measurement_id = v.measurement_row AND t.role = 'worker' "
      "WHERE v.run_row = ?1 AND v.counts AND json_extract(t.details_json, '$.target_reached') IS "
      "NOT NULL GROUP BY v.measurement_row ORDER BY m.block",
      {run_row});
  const TableView rows(table);
  std::vector<TargetCell> cells;
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CellFigure figure = figure_cell(rows, i);
    const auto [place, is_new] = places.emplace(key_without(figure, ""), cells.size());
    if (is_new) {
      TargetCell one;
      one.cell = trained_cell(figure);
      one.target = target_of(one.cell.settings);
      one.task = task_of(one.cell.settings);
      one.as_one = trained_as_one(figure);
      one.figure = std::move(figure);
      cells.push_back(std::move(one));
    }
    TargetCell& cell = cells[place->second];
    ++cell.launches;
    const std::string regime = rows.text(i, "regime");
    if (!regime.empty()) cell.figure.regimes.insert(regime);
    if (rows.integer(i, "reached") == 0) continue;
    LaunchFigure launch;
    launch.block = rows.integer(i, "block");
    launch.median_us = rows.real(i, "trained_us").value_or(0);
    launch.regime = regime;
    cell.figure.launches.push_back(std::move(launch));
  }
  return cells;
}

std::string way_words(const CellFigure& figure) {
  const auto settings = trained_cell(figure).settings;
  std::string words = figure.algorithm;
  for (const char* name :
       {"synchronisation", "local_steps", "staleness", "backups", "topology", "group_size",
        "slow_momentum", "switch_to", "switch_after", "compression", "density", "bits", "rank"}) {
    const auto found = settings.find(name);
    if (found == settings.end()) continue;
    const std::string value = found->is_string() ? found->get<std::string>() : found->dump();
    const std::string_view plain(name);
    words += plain == "synchronisation" || plain == "compression"
                 ? " " + value
                 : fmt::format(", {} {}", name, value);
  }
  return words;
}

std::string measured_help(const Reader& reader, std::int64_t run_row, const TrainedPlace& place,
                          const std::set<std::string>& regimes) {
  if (const auto here = help_in_run(target_cells(reader, run_row), place)) return *here;
  const Table others = reader.query(
      "SELECT DISTINCT run_row FROM v_training WHERE run_row <> ?1 AND counts AND "
      "json_extract(settings, '$.target') IS NOT NULL ORDER BY run_row DESC",
      {run_row});
  const TableView runs(others);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    auto cells = target_cells(reader, runs.integer(i, "run_row"));
    std::erase_if(cells, [&](const TargetCell& one) {
      return std::none_of(one.figure.regimes.begin(), one.figure.regimes.end(),
                          [&](const std::string& regime) { return regimes.contains(regime); });
    });
    if (const auto found = help_in_run(cells, place)) return *found + ", in another run";
  }
  return "no lossy way was measured here until a target accuracy (experiments/training_local.toml "
         "and training_compression.toml do)";
}

}  // namespace dynamiccl
