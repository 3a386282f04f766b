#include "reports/model/target_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "reports/model/table_view.hpp"

namespace dynamiccl {
namespace {

// Chance that any of the configurations that are compared with plain SGD is called sooner for
// nothing.
constexpr double kFamilyError = 0.05;

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

const TargetCell* fastest_plain(const std::vector<const TargetCell*>& cells) {
  const TargetCell* best = nullptr;
  for (const TargetCell* one : cells) {
    if (!one->plain || one->figure.launches.empty() || !one->always_reached()) continue;
    if (best == nullptr || one->figure.median_us() < best->figure.median_us()) best = one;
  }
  return best;
}

/// A lossy configuration against plain SGD.
struct Contender {
  const TargetCell* cell;
  Ratio ratio;
  double probability;  ///< that it is so far from plain SGD where there is no difference
};

/// The one with the smallest ratio of those that are surely sooner than plain SGD, all tested at
/// once (Holm, Scandinavian Journal of Statistics 6, 1979); nullptr where none is.
const Contender* best_sure(std::vector<Contender>& all) {
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.probability < b.probability; });
  const Contender* best = nullptr;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].probability * static_cast<double>(all.size() - i) >= kFamilyError) break;
    if (all[i].ratio.value < 1 && (best == nullptr || all[i].ratio.value < best->ratio.value))
      best = &all[i];
  }
  return best;
}

/// What cells say of what helps; the greater `worth` says more.
struct Help {
  enum Worth { no_comparison, none_sooner, sooner };
  Worth worth;
  std::string text;
};

/// "1 lossy configuration was", "3 lossy configurations were"
std::string lossy_words(std::ptrdiff_t lossy) {
  return fmt::format("{} lossy configuration{}", lossy, lossy == 1 ? " was" : "s were");
}

/// Plain SGD has no time until the target to compare others with.
std::string without_plain(const std::vector<const TargetCell*>& cells, std::ptrdiff_t lossy) {
  const TargetCell* plain = nullptr;
  std::string reached;
  for (const TargetCell* one : cells) {
    if (one->plain &&
        (plain == nullptr || one->figure.launches.size() > plain->figure.launches.size()))
      plain = one;
    if (!one->as_one && one->always_reached())
      reached += (reached.empty() ? "" : " and ") + configuration_words(one->figure);
  }
  const double target = cells.front()->target;
  std::string text =
      fmt::format("{} measured here until accuracy {:g}", lossy_words(lossy), target);
  text += plain == nullptr
              ? std::string(
                    ", but no plain SGD that they could be compared with: add it to the "
                    "experiment")
              : fmt::format(
                    ", but plain SGD ({}) reached it in {} only, so that there is "
                    "no time to compare theirs with: train longer or lower the target",
                    plain->figure.algorithm,
                    counted_of(plain->figure.launches.size(), plain->launches, "launch"));
  if (!reached.empty()) text += fmt::format("; always reached by {}", reached);
  return text;
}

/// What the cells of one task say; nullopt where nothing lossy was measured.
std::optional<Help> help_in(const std::vector<const TargetCell*>& cells) {
  const TargetCell* plain = fastest_plain(cells);
  const auto lossy =
      std::count_if(cells.begin(), cells.end(), [](const TargetCell* one) { return !one->as_one; });
  if (lossy == 0) return std::nullopt;
  if (plain == nullptr) return Help{Help::no_comparison, without_plain(cells, lossy)};
  std::vector<Contender> contenders;
  for (const TargetCell* one : cells) {
    if (one->as_one || one->figure.launches.empty() || !one->always_reached()) continue;
    const Ratio ratio = time_ratio_anyway(one->figure, plain->figure);
    contenders.push_back({one, ratio, outside_band_probability(ratio, {0})});
  }
  const auto missed = lossy - static_cast<std::ptrdiff_t>(contenders.size());
  const std::string rest = missed == 0 ? "" : fmt::format("; {} did not always reach it", missed);
  if (const Contender* best = best_sure(contenders))
    return Help{
        Help::sooner,
        fmt::format(
            "measured here: {} takes {:.3g} [{:.3g}, {:.3g}] of {}'s time to accuracy {:g} ({} "
            "launches; the best of {} lossy configuration{}{})",
            configuration_words(best->cell->figure), best->ratio.value, best->ratio.interval->low,
            best->ratio.interval->high, plain->figure.algorithm, plain->target,
            best->cell->figure.launches.size(), lossy, lossy == 1 ? "" : "s", rest)};
  return Help{Help::none_sooner,
              fmt::format("none of {} lossy configuration{} that {} measured here reaches accuracy "
                          "{:g} surely sooner than {}{}",
                          lossy, lossy == 1 ? "" : "s", lossy == 1 ? "was" : "were", plain->target,
                          plain->figure.algorithm, rest)};
}

/// What says most of all tasks.
std::optional<Help> help_in_run(const std::vector<TargetCell>& cells, const TrainedPlace& place) {
  std::optional<Help> found;
  for (const auto& [task, alike] : tasks_in(cells, place)) {
    auto help = help_in(alike);
    if (help && (!found || help->worth > found->worth)) found = std::move(help);
  }
  return found;
}

}  // namespace

std::vector<TargetCell> target_cells(const Reader& reader, std::int64_t run_row) {
  const Table table = reader.query(
      "SELECT m.run_id, m.environment, m.backend, m.architecture, m.collective, m.size_bytes, "
      "m.ranks, m.datatype, m.algorithm, m.in_place, m.group_knobs, m.cell_knobs, m.block, "
      "m.regime_name AS regime, v.target_reached AS reached, v.trained_us AS trained_us, "
      "v.task AS task "
      "FROM v_training v JOIN v_measurement m ON m.measurement_row = v.measurement_row "
      "WHERE v.run_row = ?1 AND v.counts AND v.target_reached IS NOT NULL ORDER BY m.block",
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
      one.task = rows.text(i, "task");
      one.as_one = trained_as_one(figure);
      one.plain = is_plain_sgd(figure);
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

namespace {

/// In this order, where a cell has them.
constexpr const char* kTrainingWords =
    "synchronisation local_steps staleness backups topology group_size slow_momentum local_after "
    "adapt_every elastic lag_threshold shares participants switch_to switch_after compression "
    "density bits rank group_compression lars rate_warmup";

}  // namespace

std::string configuration_words(const CellFigure& figure) {
  const auto settings = trained_cell(figure).settings;
  std::string words = figure.algorithm;
  for (const std::string& name : split(kTrainingWords, ' ')) {
    const auto found = settings.find(name);
    if (found == settings.end()) continue;
    const std::string value = found->is_string() ? found->get<std::string>() : found->dump();
    words += name == "synchronisation" || name == "compression"
                 ? " " + value
                 : fmt::format(", {} {}", name, value);
  }
  return words;
}

const std::vector<TargetCell>& MeasuredTargets::of(std::int64_t run_row) {
  const auto [place, is_new] = cells_.try_emplace(run_row);
  if (is_new) place->second = target_cells(reader_, run_row);
  return place->second;
}

const std::vector<std::int64_t>& MeasuredTargets::runs() {
  if (runs_) return *runs_;
  const Table table = reader_.query(
      "SELECT DISTINCT run_row FROM v_training WHERE counts AND json_extract(settings, '$.target') "
      "IS NOT NULL ORDER BY run_row DESC",
      {});
  const TableView rows(table);
  runs_.emplace();
  for (std::size_t i = 0; i < rows.size(); ++i) runs_->push_back(rows.integer(i, "run_row"));
  return *runs_;
}

std::string measured_help(MeasuredTargets& measured, std::int64_t run_row,
                          const TrainedPlace& place, const std::set<std::string>& regimes) {
  auto help = help_in_run(measured.of(run_row), place);
  if (help && help->worth != Help::no_comparison) return help->text;
  for (const std::int64_t other : measured.runs()) {
    if (other == run_row) continue;
    auto cells = measured.of(other);
    std::erase_if(cells, [&](const TargetCell& one) {
      return std::none_of(one.figure.regimes.begin(), one.figure.regimes.end(),
                          [&](const std::string& regime) { return regimes.contains(regime); });
    });
    const auto found = help_in_run(cells, place);
    if (found && (!help || found->worth > help->worth))
      help = Help{found->worth, found->text + ", in another run"};
    if (help && help->worth != Help::no_comparison) return help->text;
  }
  if (help) return help->text;
  return "no lossy configuration was measured here until a target accuracy "
         "(experiments/training_local.toml "
         "and training_compression.toml do)";
}

}  // namespace dynamiccl
