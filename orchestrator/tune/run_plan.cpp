#include "orchestrator/tune/run_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>

#include "core/vocabulary/backend.hpp"
#include "orchestrator/tune/work_time.hpp"
#include "reports/model/published.hpp"
#include "reports/model/table_view.hpp"
#include "train/spec/payload.hpp"
#include "train/spec/training.hpp"
#include "tuner/state/published_scaling.hpp"
#include "tuner/state/state_from_regime.hpp"

namespace dynamiccl {
namespace {

// How far a schedule that the study calls a winner, or weak, is ahead or behind in ln(time), where
// communication takes as long as computation.
constexpr double kWinner = -0.25;
constexpr double kWeak = 0.10;

bool is_training(const WorkCell& cell) { return cell.collective == Collective::training; }

// Of the optimizer: with other ones a step teaches something else, which its time does not tell.
constexpr std::array<const char*, 4> kOptimizerSettings{"learning_rate", "momentum", "lars",
                                                        "rate_warmup"};

/// Steps that lose something say nothing by their time: they need an accuracy to reach.
bool is_comparable(const WorkCell& cell) {
  if (!is_training(cell)) return true;
  const TrainingSpec& spec = training_spec(cell);
  return trains_as_one(spec) || spec.target > 0;
}

/// All that makes two cells the same work; in the same place, unless that is a choice, too.
std::string work_text(const PlannedGroup& group, const WorkCell& cell, bool any_environment) {
  std::string text = fmt::format("{}|{}|", any_environment ? "" : group.environment, group.ranks);
  for (const auto& [name, value] : group.knobs) text += fmt::format("{}={};", name, value);
  text += fmt::format("|{}|{}|{}|{}|", name_of(cell.collective), cell.size.count(),
                      name_of(cell.datatype), cell.in_place);
  if (!is_training(cell)) {
    for (const auto& [name, value] : cell.knobs) text += fmt::format("{}={};", name, value);
    return text;
  }
  const auto add = [&](const std::string& name) {
    if (const auto knob = cell.knobs.find(name); knob != cell.knobs.end())
      text += fmt::format("|{}={}", name, knob->second);
  };
  for (const std::string& name : training_task_settings()) add(name);
  if (!trains_to_target(cell))
    for (const char* name : kOptimizerSettings) add(name);
  return text;
}

double work_scale(const PlannedGroup& group, const WorkCell& cell) {
  // Who has fewer workers does less in a step; an accuracy is the same for all.
  if (!is_training(cell) || trains_to_target(cell)) return 1;
  return static_cast<double>(group.ranks) / workers_of(training_spec(cell), group.ranks);
}

/// The values of one axis over all ways, the default's first as "default".
class Axis {
 public:
  std::uint8_t index(const std::string& value) {
    const auto found = std::find(values_.begin(), values_.end(), value);
    if (found != values_.end()) return static_cast<std::uint8_t>(found - values_.begin());
    values_.push_back(value);
    return static_cast<std::uint8_t>(values_.size() - 1);
  }
  [[nodiscard]] Knob knob(const char* name) const {
    Knob knob{.name = name,
              .role = KnobRole::implementation,
              .scope = KnobScope::launch,
              .target = std::string("run.") + name,
              .values = values_};
    knob.values.front() = "default";
    return knob;
  }

 private:
  std::vector<std::string> values_;
};

/// One workload with its ways to run, as it is put together.
struct Workload {
  std::vector<RunChoice> choices;
  std::vector<Action> actions;  ///< by choice
  Axis environment;             ///< one value unless the environment is a choice, too
  Axis backend;
  Axis architecture;
  Axis schedule;
  Axis waiting;  ///< one value unless cells differ in it
};

/// What a way to run gives to the library; nullopt where that depends on values.
std::optional<Bytes> wire_size(const WorkCell& cell) {
  if (!is_training(cell)) return cell.size;
  const TrainingSpec& spec = training_spec(cell);
  if (spec.packing != Packing::none || spec.group_compression != Codec::none) return std::nullopt;
  const auto bytes = payload_of(spec).effective_bytes;
  return bytes ? std::optional(Bytes(*bytes)) : std::nullopt;
}

/// What all of them give to the library alike; nullopt where ways differ or nobody knows before.
std::optional<Bytes> common_wire_size(const std::vector<RunChoice>& choices) {
  const auto size = wire_size(choices.front().cell);
  const bool alike = std::all_of(choices.begin(), choices.end(), [&](const RunChoice& choice) {
    return wire_size(choice.cell) == size;
  });
  return alike ? size : std::nullopt;
}

TuneTask task_of(const TunePlan& plan, const Workload& work) {
  const RunChoice& first = work.choices.front();
  const PlannedGroup& group = plan.base.groups[first.group];
  TuneTask task = task_in(group, first.group, first.cell);
  const auto exists = [&](const ActionSpace&, const Action& action) {
    return std::find(work.actions.begin(), work.actions.end(), action) != work.actions.end();
  };
  task.search.task.space = std::make_shared<const ActionSpace>(
      ActionSpace(fmt::format("ways to run {}", name_of(first.cell.collective)),
                  {work.environment.knob("environment"), work.backend.knob("backend"),
                   work.architecture.knob("architecture"), work.schedule.knob("schedule"),
                   work.waiting.knob("synchronisation")},
                  exists));
  for (const Action& action : task.search.task.space->arms()) {
    const auto place = std::find(work.actions.begin(), work.actions.end(), action);
    const RunChoice& choice = work.choices[static_cast<std::size_t>(place - work.actions.begin())];
    task.runs.push_back(choice);
    const PlannedGroup& own = plan.base.groups[choice.group];
    task.search.task.prior_log_us.push_back(published_log_time(own) +
                                            schedule_log_offset(choice.cell, own.ranks));
  }
  // A codec that ways differ in is theirs, not the task's: its size is the plain values' then, and
  // what goes over the wire is not said.
  const auto wire = common_wire_size(work.choices);
  TaskKey& key = task.search.task.key.task;
  if (wire) key.bin = SizeBin::of(*wire);
  set_task(task.search.task.state, key, first.cell.size, wire.value_or(first.cell.size));
  if (!wire) task.search.task.state.effective_size = std::nullopt;
  return task;
}

void refuse_twins(const TunePlan& plan) {
  std::map<RegimeKey, const TuneTask*> seen;
  for (const TuneTask& task : plan.tasks)
    if (!seen.emplace(task.search.task.key, &task).second)
      throw Error(ErrorKind::input,
                  fmt::format("two workloads in {} are alike in collective, size and ranks ({}): "
                              "what is learnt of one would be taken for the other; choose one "
                              "with --only",
                              task.environment, task.search.task.key.task.text()));
}

}  // namespace

double published_log_time(const PlannedGroup& group) {
  const std::string_view family =
      backend_facts(group.backend).is_mpi ? "mpi" : name_of(group.backend);
  const char* place = group.environment.starts_with("cross-docker") ? "cross_docker" : "bare_metal";
  for (const auto& row : published_figures().at("s000").at("training_time").at("rows"))
    if (row.at("backend") == family && row.at("architecture") == name_of(group.architecture))
      return std::log(row.at(place).get<double>());
  return 0;
}

double schedule_log_offset(const WorkCell& cell, int ranks) {
  if (!is_training(cell)) return 0;
  const TrainingSpec& spec = training_spec(cell);
  const double intensity = facts_of(spec.model, spec.sequence).intensity();
  const double weight = std::min(1.0, c2c_predicted(spec, workers_of(spec, ranks)) / usual_c2c());
  const bool high = intensity >= published_intensity_split();
  switch (method_row(spec.method).published) {
    case PublishedStanding::best_below_intensity:
      return weight * (high ? kWinner / 2 : kWinner);
    case PublishedStanding::best_above_intensity:
      return weight * (high ? kWinner : 0);
    case PublishedStanding::better:
      return weight * kWinner / 2;
    case PublishedStanding::worse:
      return weight * kWeak;
    case PublishedStanding::unknown:
      return 0;
  }
  return 0;
}

TunePlan make_run_plan(const Plan& plan, const TuneOptions& options, bool any_environment) {
  refuse_simulated(plan);
  TunePlan result;
  result.options = options;
  std::vector<std::string> order;
  std::map<std::string, Workload> works;
  std::size_t without_target = 0;
  for (const PlannedGroup& group : plan.groups) {
    PlannedGroup base = group;
    base.cells.clear();
    for (const PlannedCell& cell : group.cells) {
      if (!cell.impossible.empty()) continue;
      if (!is_comparable(cell.work)) {
        ++without_target;
        continue;
      }
      base.cells.push_back(cell);
      const std::string key = work_text(group, cell.work, any_environment);
      if (!works.contains(key)) order.push_back(key);
      Workload& work = works[key];
      const Action action{work.environment.index(group.environment),
                          work.backend.index(std::string(name_of(group.backend))),
                          work.architecture.index(std::string(name_of(group.architecture))),
                          work.schedule.index(cell.work.algorithm),
                          work.waiting.index(configuration_text(cell.work))};
      // Knobs of collectives that are no choice here (segments, say): the first cell stands for
      // all.
      if (std::find(work.actions.begin(), work.actions.end(), action) != work.actions.end())
        continue;
      work.actions.push_back(action);
      work.choices.push_back({result.base.groups.size(), cell.work, work_scale(group, cell.work)});
    }
    if (!base.cells.empty()) result.base.groups.push_back(std::move(base));
  }
  for (const std::string& key : order)
    if (works[key].choices.size() > 1) result.tasks.push_back(task_of(result, works[key]));
  if (result.tasks.empty())
    throw Error(ErrorKind::input,
                "nothing to choose between runs: no workload of the file can run here with more "
                "than one backend, architecture, schedule or synchronisation; `dynamiccl plan` "
                "shows what can run" +
                    (without_target == 0
                         ? std::string()
                         : fmt::format("; {} cells that do not train as one process would are left "
                                       "out, as they have no accuracy to reach: set target and "
                                       "epochs",
                                       without_target)));
  refuse_twins(result);
  return result;
}

std::vector<Experience> earlier_runs(const Reader& reader, const TunePlan& plan, int most) {
  std::map<std::string, Ask> by_cell;
  std::map<std::string, std::pair<std::size_t, std::map<std::string, std::size_t>>> by_choice;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const TuneTask& task = plan.tasks[t];
    auto& [place, arms] = by_choice[task.environment + "|" + task.search.task.key.task.text()];
    place = t;
    for (std::size_t a = 0; a < task.arms(); ++a) {
      by_cell[place_of(plan, {t, a}, "").cell_id] = {t, a};
      arms[task.text(plan, a)] = a;
    }
  }
  // Newest first, so that what is over `most` is what is oldest.
  std::vector<Experience> found;
  std::map<Ask, int> counts;
  const auto keep = [&](const Ask& ask, const std::string& regime, double us) {
    if (us > 0 && ++counts[ask] <= most) found.push_back({ask.task, ask.arm, regime, Micros{us}});
  };
  const Table choices = reader.query(
      "SELECT d.environment || '|' || d.task_key AS work, d.arm AS arm, d.regime AS regime, "
      "d.time_us AS time_us FROM decision d JOIN tuning t ON t.id = d.tuning_id "
      "WHERE t.mode = 'live' AND d.kind <> 'final' AND d.time_us > 0 ORDER BY d.id DESC");
  const TableView logged(choices);
  for (std::size_t row = 0; row < logged.size(); ++row) {
    const auto work = by_choice.find(logged.text(row, "work"));
    if (work == by_choice.end()) continue;
    const auto arm = work->second.second.find(logged.text(row, "arm"));
    if (arm == work->second.second.end()) continue;
    keep({work->second.first, arm->second}, logged.text(row, "regime"),
         logged.real(row, "time_us").value_or(0));
  }
  const Table rows = reader.query(
      fmt::format("SELECT m.cell_id, m.regime_id, {} AS time_us FROM v_measurement m "
                  "WHERE m.counts AND m.median_us > 0 AND m.regime_id IS NOT NULL ORDER BY "
                  "m.launch_row DESC",
                  work_time_sql("m")));
  const TableView measured(rows);
  for (std::size_t row = 0; row < measured.size(); ++row) {
    const auto place = by_cell.find(measured.text(row, "cell_id"));
    if (place == by_cell.end()) continue;
    const Ask& ask = place->second;
    keep(ask, measured.text(row, "regime_id"),
         measured.real(row, "time_us").value_or(0) * plan.tasks[ask.task].runs[ask.arm].work_scale);
  }
  std::reverse(found.begin(), found.end());
  return found;
}

}  // namespace dynamiccl
