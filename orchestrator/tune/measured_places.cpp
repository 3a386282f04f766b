#include "orchestrator/tune/measured_places.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/statistics/statistics.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/setting.hpp"
#include "core/vocabulary/simulated.hpp"
#include "core/vocabulary/text.hpp"
#include "core/wire/work_settings.hpp"
#include "reports/model/table_view.hpp"
#include "tuner/agents/kernel_means.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;
using StoredSetting = std::map<std::string, std::string>;

constexpr const char* kAlgorithm = "algorithm";

void add_knobs(const std::string& text, SettingScope scope, bool bare, StoredSetting& choice) {
  const json knobs = json_or_discarded(text);
  if (!knobs.is_object()) return;
  for (const auto& [name, value] : knobs.items())
    if (value.is_string() && value != "default")
      choice[bare ? setting_text(scope, name) : name] = value.get<std::string>();
}

/// One cell of a run: the same operation on as many ranks in an environment.
struct StoredCell {
  PlacedCell placed;
  std::map<StoredSetting, std::vector<double>> us;
};

/// What every setting of the cell has is part of the cell, not a choice.
void drop_common(StoredCell& cell) {
  StoredSetting common = cell.us.begin()->first;
  for (const auto& [choice, us] : cell.us)
    std::erase_if(common, [&choice = choice](const auto& one) {
      const auto found = choice.find(one.first);
      return found == choice.end() || found->second != one.second;
    });
  std::map<StoredSetting, std::vector<double>> rest;
  for (auto& [choice, us] : cell.us) {
    StoredSetting own = choice;
    for (const auto& [name, value] : common) own.erase(name);
    rest[own] = std::move(us);
  }
  cell.us = std::move(rest);
}

std::string key_of(const StoredSetting& choice) {
  ActionSettings setting;
  for (const auto& [name, value] : choice) {
    const auto known = find_setting(name);
    if (name == kAlgorithm)
      setting.algorithm = value;
    else if (known && known->scope == SettingScope::call)
      setting.call_knobs[known->name] = value;
    else
      setting.launch_knobs[name] = value;
  }
  return setting_key(setting);
}

}  // namespace

std::vector<PlacedCell> stored_places(const Reader& reader) {
  const Table rows = reader.query(
      "SELECT m.run_row AS run_row, m.environment AS environment, m.backend AS backend, "
      "m.architecture AS architecture, m.collective AS collective, m.size_bytes AS size_bytes, "
      "m.datatype AS datatype, m.in_place AS in_place, m.ranks AS ranks, m.algorithm AS algorithm, "
      "m.group_knobs AS group_knobs, m.cell_knobs AS cell_knobs, m.median_us AS median_us, "
      "json_extract(l.regime_json, '$.features.shared_memory_between_ranks') AS shared "
      "FROM v_measurement m JOIN launch l ON l.id = m.launch_row "
      "WHERE m.counts AND m.median_us > 0 AND m.collective <> 'training' AND "
      "m.size_bytes > 0 ORDER BY m.launch_row",
      {});
  const TableView view(rows);
  std::map<std::string, StoredCell> cells;
  for (std::size_t row = 0; row < view.size(); ++row) {
    const auto text = [&](const char* column) { return view.text(row, column); };
    if (is_simulated(text("environment"))) continue;
    StoredCell& cell = cells[fmt::format(
        "{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", text("run_row"), text("environment"), text("backend"),
        text("architecture"), text("collective"), text("size_bytes"), text("datatype"),
        text("in_place"), text("ranks"), work_part_of(text("cell_knobs")))];
    cell.placed.place = "this database: " + text("environment");
    cell.placed.shared_memory = text("shared") != "0";  // "": not known
    cell.placed.key = {
        .collective = parse_named<Collective>(text("collective")),
        .bin = SizeBin::of(Bytes{static_cast<std::uint64_t>(view.integer(row, "size_bytes"))}),
        .group_size = static_cast<int>(view.integer(row, "ranks")),
        .nodes = 1,
        .architecture = parse_named<Architecture>(text("architecture")),
        .backend = parse_named<Backend>(text("backend"))};
    StoredSetting choice;
    if (text("algorithm") != "library") choice[kAlgorithm] = text("algorithm");
    add_knobs(text("group_knobs"), SettingScope::env, false, choice);
    add_knobs(text("cell_knobs"), SettingScope::call, true, choice);
    cell.us[choice].push_back(view.real(row, "median_us").value_or(0));
  }
  std::vector<PlacedCell> placed;
  for (auto& [name, cell] : cells) {
    drop_common(cell);
    const auto reference = cell.us.find({});
    if (reference == cell.us.end() || cell.us.size() < 2) continue;
    const double default_us = median(reference->second);
    for (const auto& [choice, us] : cell.us)
      if (!choice.empty())
        cell.placed.log_ratio[key_of(choice)] = std::log(median(us) / default_us);
    placed.push_back(std::move(cell.placed));
  }
  return placed;
}

std::vector<PlacedCell> known_places(const std::string& named, const Reader& reader) {
  const std::string file = named.empty() ? shipped_places() : named;
  std::vector<PlacedCell> cells = file.empty() ? std::vector<PlacedCell>{} : read_places(file);
  const std::vector<PlacedCell> own = stored_places(reader);
  cells.insert(cells.end(), own.begin(), own.end());
  return cells;
}

std::string start_from_places(TunePlan& plan, const Experiment& experiment,
                              const std::vector<PlacedCell>& cells) {
  std::set<std::string> places;
  std::size_t started = 0;
  for (TuneTask& task : plan.tasks) {
    const auto profile = experiment.profiles.find(task.environment);
    const PlannedGroup& group = plan.base.groups[task.group];
    const bool apart = group.nodes > 1 || (profile != experiment.profiles.end() &&
                                           profile->second.kind == EnvironmentKind::cross_docker);
    const PlaceRanking ranking =
        rank_by_places(task.search.task, shares_memory(experiment, group).value_or(!apart), cells);
    if (!start_from(task.search.task, ranking)) continue;
    ++started;
    places.insert(ranking.places.begin(), ranking.places.end());
  }
  if (started == 0) return "nothing that was measured in other places is known of these settings";
  return fmt::format("the search starts from what {} measured of settings, {}: {}",
                     counted(places.size(), "other place"),
                     counted_of(started, plan.tasks.size(), "cell"),
                     join({places.begin(), places.end()}, "; "));
}

std::string judged_places(const TunePlan& plan, const TuningResult& result) {
  double foretold = 0;
  double measured = 0;
  double off = 0;
  int compared = 0;
  int first = 0;
  for (const TunedTask& tuned : result.tasks) {
    const Task& task = plan.tasks[tuned.task].search.task;
    if (tuned.candidate == 0 || !tuned.ratio || !is_placed(task)) continue;
    const auto& expected = task.prior_log_us;
    const double said = expected[tuned.candidate] - expected[0];
    const double was = std::log(tuned.ratio->value);
    ++compared;
    foretold += said;
    measured += was;
    off += std::abs(said - was);
    if (std::min_element(expected.begin(), expected.end()) ==
        expected.begin() + static_cast<std::ptrdiff_t>(tuned.candidate))
      ++first;
  }
  if (compared == 0) return "";
  return fmt::format(
      "other places foretold x {:.2f} of the default's time for what was compared "
      "with it in {}, measured x {:.2f}; off by a factor of {:.2f} a cell; {} of "
      "these settings were their first",
      std::exp(foretold / compared), counted(static_cast<std::size_t>(compared), "cell"),
      std::exp(measured / compared), std::exp(off / compared), first);
}

}  // namespace dynamiccl
