#include "benchmarks/grid_samples.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/setting.hpp"
#include "reports/model/table_view.hpp"
#include "tuner/state/state_from_regime.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;
using GridChoice = std::map<std::string, std::string>;

constexpr const char* kAlgorithm = "algorithm";

/// All measurements of one work: the same operation on as many ranks in the same place.
struct MeasuredWork {
  TaskKey key;
  std::string environment;
  Bytes size;
  std::string regime_id;
  json regime;
  std::map<GridChoice, std::vector<std::pair<double, std::int64_t>>> times;  ///< us, launch
};

/// @param of_call stored by their own names, as workers know them
void add_choice(const std::string& text, bool of_call, GridChoice& settings) {
  const json knobs = json_or_discarded(text);
  if (!knobs.is_object()) return;
  for (const auto& [name, value] : knobs.items())
    if (value.is_string() && value != "default")
      settings[of_call ? setting_text(SettingScope::call, name) : name] = value.get<std::string>();
}

std::optional<double> as_a_number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// The knob whose values these are; numbers in rising order are a resource.
Knob knob_of(const std::string& name, const std::set<std::string>& values) {
  std::vector<std::string> sorted(values.begin(), values.end());
  const bool numbers = std::all_of(sorted.begin(), sorted.end(),
                                   [](const std::string& v) { return as_a_number(v).has_value(); });
  if (numbers)
    std::sort(sorted.begin(), sorted.end(), [](const std::string& a, const std::string& b) {
      return *as_a_number(a) < *as_a_number(b);
    });
  const bool of_call = name == kAlgorithm || !settings_of({{name, ""}}, SettingScope::call).empty();
  Knob knob{.name = name,
            .role = numbers ? KnobRole::resource : KnobRole::implementation,
            .scope = of_call ? KnobScope::call : KnobScope::launch,
            .target = name,
            .values = {"default"}};
  knob.values.insert(knob.values.end(), sorted.begin(), sorted.end());
  return knob;
}

/// What every setting of the work has; it is part of the work, not a choice.
GridChoice common_to_all(const MeasuredWork& work) {
  GridChoice common = work.times.begin()->first;
  for (const auto& [settings, times] : work.times)
    std::erase_if(common, [&settings = settings](const auto& entry) {
      const auto found = settings.find(entry.first);
      return found == settings.end() || found->second != entry.second;
    });
  return common;
}

std::optional<SampledTask> grid_task(const MeasuredWork& work) {
  const GridChoice common = common_to_all(work);
  std::map<std::string, std::set<std::string>> values;
  std::map<GridChoice, const std::vector<std::pair<double, std::int64_t>>*> by_choice;
  for (const auto& [settings, times] : work.times) {
    GridChoice choice = settings;
    for (const auto& [name, value] : common) choice.erase(name);
    for (const auto& [name, value] : choice) values[name].insert(value);
    by_choice[choice] = &times;
  }
  if (by_choice.size() < 2 || !by_choice.contains({})) return std::nullopt;
  std::vector<Knob> knobs;
  for (const auto& [name, all] : values) knobs.push_back(knob_of(name, all));
  std::stable_sort(knobs.begin(), knobs.end(),
                   [](const Knob& a, const Knob& b) { return a.role < b.role; });
  const auto choice_of = [](const ActionSpace& space, const Action& action) {
    GridChoice choice;
    for (std::size_t k = 0; k < action.size(); ++k)
      if (action[k] != 0) choice[space.knobs()[k].name] = space.knobs()[k].values[action[k]];
    return choice;
  };
  SampledTask task;
  task.search.size = work.size;
  task.search.nodes = work.key.nodes;
  task.search.task.key = {work.environment, work.key};
  task.search.task.space = std::make_shared<const ActionSpace>(
      "stored grid", std::move(knobs), [&](const ActionSpace& space, const Action& action) {
        return by_choice.contains(choice_of(space, action));
      });
  set_task(task.search.task.state, work.key, work.size, work.size);
  task.regime_id = work.regime_id;
  task.regime = work.regime;
  for (const Action& arm : task.search.task.space->arms()) {
    auto& us = task.arm_us.emplace_back();
    auto& launches = task.arm_launch.emplace_back();
    for (const auto& [time, launch] : *by_choice.at(choice_of(*task.search.task.space, arm))) {
      us.push_back(time);
      launches.push_back(launch);
    }
  }
  return task;
}

}  // namespace

std::vector<SampledTask> load_grid(const Reader& reader, const std::string& run_id) {
  const Table rows = reader.query(
      "SELECT m.environment AS environment, m.backend AS backend, m.architecture AS architecture, "
      "m.collective AS collective, m.size_bytes AS size_bytes, m.ranks AS ranks, m.algorithm AS "
      "algorithm, m.group_knobs AS group_knobs, m.cell_knobs AS cell_knobs, m.median_us AS "
      "median_us, m.launch_row AS launch_row, m.regime_id AS regime_id, l.regime_json AS "
      "regime_json FROM v_measurement m JOIN launch l ON l.id = m.launch_row "
      "WHERE m.run_id = ?1 AND m.counts AND m.median_us > 0 AND m.collective <> 'training' "
      "ORDER BY m.block",
      {run_id});
  const TableView view(rows);
  std::map<std::string, MeasuredWork> works;
  for (std::size_t row = 0; row < view.size(); ++row) {
    const auto text = [&](const char* column) { return view.text(row, column); };
    const auto size = static_cast<std::uint64_t>(view.integer(row, "size_bytes"));
    const auto ranks = static_cast<int>(view.integer(row, "ranks"));
    MeasuredWork& work =
        works[fmt::format("{}|{}|{}|{}|{:020}|{}", text("environment"), text("backend"),
                          text("architecture"), text("collective"), size, ranks)];
    work.environment = text("environment");
    work.size = Bytes{size};
    work.key = {.collective = parse_named<Collective>(text("collective")),
                .bin = SizeBin::of(work.size),
                .group_size = ranks,
                .nodes = 1,
                .architecture = parse_named<Architecture>(text("architecture")),
                .backend = parse_named<Backend>(text("backend"))};
    GridChoice settings;
    if (text("algorithm") != "library") settings[kAlgorithm] = text("algorithm");
    add_choice(text("group_knobs"), false, settings);
    add_choice(text("cell_knobs"), true, settings);
    work.times[settings].emplace_back(view.real(row, "median_us").value_or(0),
                                      view.integer(row, "launch_row"));
    if (!work.regime_id.empty()) continue;
    work.regime_id = text("regime_id");
    work.regime = json_or_discarded(text("regime_json"));
  }
  std::vector<SampledTask> tasks;
  for (const auto& [text, work] : works)
    if (auto task = grid_task(work)) tasks.push_back(std::move(*task));
  if (tasks.empty())
    throw Error(ErrorKind::input,
                fmt::format("run {} in {} measured no work with several settings and without any; "
                            "`dynamiccl query coverage --run {}` shows what it measured",
                            run_id, reader.path(), run_id));
  return tasks;
}

std::string find_run(const Reader& reader, const std::string& experiment_name) {
  const Table found = reader.query(
      "SELECT uuid AS run_id FROM run WHERE name = ?1 ORDER BY id DESC LIMIT 1", {experiment_name});
  if (found.rows.empty())
    throw Error(ErrorKind::input, fmt::format("{} holds no run of experiment \"{}\"; `dynamiccl "
                                              "query runs --db {}` lists what it holds",
                                              reader.path(), experiment_name, reader.path()));
  return TableView(found).text(0, "run_id");
}

}  // namespace dynamiccl
