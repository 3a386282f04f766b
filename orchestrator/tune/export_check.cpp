#include "orchestrator/tune/export_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/statistics/verdict.hpp"
#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/setting.hpp"
#include "orchestrator/tune/fresh_launches.hpp"
#include "tuner/export/export.hpp"
#include "tuner/export/mpi_export.hpp"

namespace dynamiccl {
namespace {

constexpr std::array<std::uint64_t, 20> kSizes{
    4,      16,     64,     256,     1024,    4096,    8192,    16384,    32768,    65536,
    131072, 262144, 524288, 1048576, 2097152, 4194304, 8388608, 16777216, 33554432, 67108864};

bool takes_a_file(const PlannedGroup& group) {
  const BackendFacts& facts = backend_facts(group.backend);
  return facts.is_mpi && !facts.on_gpu && group.architecture == Architecture::ring;
}

/// The worker counts all ranks' parts together; each has an element at least.
bool exists(const WorkCell& cell, int ranks) {
  const bool in_parts = cell.collective != Collective::allreduce &&
                        cell.collective != Collective::broadcast &&
                        cell.collective != Collective::reduce;
  const std::uint64_t parts = in_parts ? static_cast<std::uint64_t>(ranks) : 1;
  return cell.size.count() % (element_bytes(cell.datatype) * parts) == 0;
}

std::set<std::uint64_t> sizes_for(const ConfigurationTable& table, Backend backend,
                                  Collective collective) {
  std::set<std::uint64_t> sizes(kSizes.begin(), kSizes.end());
  for (const TableEntry& entry : table.entries)
    if (entry.key.task.backend == backend && entry.key.task.collective == collective)
      sizes.insert(entry.size.count());
  return sizes;
}

TuneTask task_for(const TunePlan& plan, const CheckPlan::Place& place, WorkCell cell) {
  const PlannedGroup& group = plan.base.groups[place.plain];
  cell.algorithm = "library";
  cell.knobs.clear();
  cell.id =
      stable_id(fmt::format("{}|{}|{}", group.id, name_of(cell.collective), cell.size.count()));
  TuneTask task = task_in(group, place.plain, cell);
  task.runs = {{place.plain, cell, 1}, {place.loaded, cell, 1}};
  return task;
}

/// Rows of the table that a place's jobs would load.
std::vector<TableEntry> rows_for(const std::vector<TableEntry>& all, const std::string& regime,
                                 const PlannedGroup& group) {
  std::vector<TableEntry> rows;
  for (const TableEntry& entry : all)
    if (entry.key.regime == regime && entry.key.task.backend == group.backend &&
        entry.key.task.group_size == group.ranks &&
        entry.key.task.architecture == group.architecture)
      rows.push_back(entry);
  return rows;
}

bool all_default(const std::vector<TableEntry>& rows) {
  return std::all_of(rows.begin(), rows.end(),
                     [](const TableEntry& row) { return row.is_default(); });
}

/// A place while it is checked.
class PlaceCheck {
 public:
  PlaceCheck(CheckPlan& check, const CheckPlan::Place& place, LaunchEvaluator& evaluator,
             std::string regime)
      : check_(check), place_(place), evaluator_(evaluator), regime_(std::move(regime)) {
    rules_ = fmt::format("{}/exported-{}.rules", evaluator_.run_folder(), place_.loaded);
  }
  ~PlaceCheck() {
    std::error_code ignored;
    std::filesystem::remove(rules_, ignored);
  }
  PlaceCheck(const PlaceCheck&) = delete;
  PlaceCheck& operator=(const PlaceCheck&) = delete;

  [[nodiscard]] const PlannedGroup& group() const { return check_.plan.base.groups[place_.plain]; }

  /// What would be in force at every size if each took the nearest row's setting.
  [[nodiscard]] std::vector<TableEntry> stretched(const std::vector<TableEntry>& rows) const {
    const auto algorithms = mpich_algorithms(rows);
    std::map<std::string, std::string> launch;
    for (const TableEntry& row : rows)
      launch.insert(row.setting.launch_knobs.begin(), row.setting.launch_knobs.end());
    std::vector<TableEntry> force;
    for (const std::size_t t : place_.tasks) {
      const TuneTask& task = check_.plan.tasks[t];
      TableEntry entry;
      entry.key = {regime_, task.search.task.key.task};
      entry.size = task.cell.size;
      if (group().backend == Backend::mpich) {
        const auto found = algorithms.find(task.cell.collective);
        if (found != algorithms.end()) entry.setting.algorithm = found->second;
      } else if (const auto* near = nearest_row(rows, task.cell.collective, task.cell.size)) {
        entry.setting = near->setting;
      }
      entry.setting.launch_knobs = launch;
      force.push_back(std::move(entry));
    }
    return force;
  }

  /// Measures these settings, one per task, against the default.
  /// @returns false when interrupted before two rounds were complete
  bool measure(std::vector<TableEntry>& force, int launches) {
    load(force);
    std::vector<Ask> asks;
    for (const std::size_t t : place_.tasks) asks.push_back({t, 1});
    const ConfirmationRule rule{.launches = launches, .looks = 1, .confidence = 0.95};
    const auto times = confirm_choices(evaluator_, asks, rule);
    for (std::size_t i = 0; i < asks.size(); ++i) {
      TableEvidence& evidence = force[i].evidence;
      evidence = {};
      const auto [chosen, defaults] = worked(times.at(asks[i]));
      const auto ratio = ratio_of(times.at(asks[i]), rule.confidence);
      if (!ratio || !ratio->interval) continue;
      evidence.launches = static_cast<int>(chosen.size());
      evidence.default_us = median(defaults);
      evidence.tuned_us = median(chosen);
      evidence.ratio = ratio->value;
      evidence.ratio_low = ratio->interval->low;
      evidence.ratio_high = ratio->interval->high;
      evidence.verdict = name_of(judge(*ratio, EquivalenceBand{}));
    }
    return evaluator_.interrupted_by() == 0;
  }

  /// What export keeps of them.
  [[nodiscard]] std::vector<TableEntry> cut(std::vector<TableEntry> force) const {
    std::map<Collective, std::string> left;
    if (group().backend == Backend::mpich) {
      std::vector<std::string> notes;
      const auto variables = mpich_variables(force, force, notes);
      for (const auto& [collective, algorithm] : mpich_algorithms(force))
        if (variables.contains(mpich_variable(collective))) left[collective] = algorithm;
    }
    const bool lost = std::any_of(force.begin(), force.end(), [](const TableEntry& entry) {
      return !entry.setting.launch_knobs.empty() && loses(entry);
    });
    for (TableEntry& entry : force) {
      const double high = entry.evidence.ratio_high;
      const bool stays = group().backend == Backend::mpich
                             ? left.contains(entry.key.task.collective)
                             : high > 0 && high < 1;
      if (!stays) {
        entry.setting.algorithm = "library";
        entry.setting.call_knobs.clear();
      }
      if (lost) entry.setting.launch_knobs.clear();
    }
    return force;
  }

 private:
  /// Makes the loaded group what a job with the files is.
  void load(const std::vector<TableEntry>& force) {
    PlannedGroup& loaded = check_.plan.base.groups[place_.loaded];
    loaded.knobs = group().knobs;
    std::vector<std::string> notes;
    for (const TableEntry& entry : force)
      for (const auto& [name, value] : entry.setting.launch_knobs) loaded.knobs[name] = value;
    if (loaded.backend == Backend::mpich) {
      for (const auto& [collective, algorithm] : mpich_algorithms(force))
        loaded.knobs[setting_text(SettingScope::env, mpich_variable(collective))] = algorithm;
    } else {
      std::ofstream(rules_) << openmpi_rules(force, notes);
      loaded.knobs[kDynamicRules] = "1";
      loaded.knobs[setting_text(SettingScope::mca, "coll_tuned_dynamic_rules_filename")] = rules_;
    }
    loaded.id =
        stable_id(group().id + "|loaded|" + knobs_key(loaded.knobs) + std::to_string(++looks_));
  }

  CheckPlan& check_;
  const CheckPlan::Place& place_;
  LaunchEvaluator& evaluator_;
  std::string regime_;
  std::string rules_;
  int looks_ = 0;
};

void add_rows(Table& table, const PlannedGroup& group, const std::vector<TableEntry>& checks) {
  for (const TableEntry& check : checks) {
    const TableEvidence& e = check.evidence;
    const auto number = [](double value) { return value > 0 ? Value(value) : Value(); };
    std::string setting = check.setting.algorithm;
    for (const auto& knobs : {check.setting.call_knobs, check.setting.launch_knobs})
      for (const auto& [name, value] : knobs) setting += fmt::format(" {}={}", name, value);
    table.rows.push_back(
        {group.environment, std::string(name_of(group.backend)),
         static_cast<std::int64_t>(group.ranks), std::string(name_of(check.key.task.collective)),
         static_cast<std::int64_t>(check.size.count()), setting, number(e.default_us),
         number(e.tuned_us), number(e.ratio), number(e.ratio_low), number(e.ratio_high),
         e.verdict.empty() ? Value() : Value(e.verdict), static_cast<std::int64_t>(e.launches)});
  }
}

}  // namespace

const TableEntry* nearest_row(const std::vector<TableEntry>& rows, Collective collective,
                              Bytes size) {
  const auto log2_of = [](Bytes bytes) {
    return std::log2(static_cast<double>(std::max<std::uint64_t>(1, bytes.count())));
  };
  const TableEntry* best = nullptr;
  for (const TableEntry& row : rows) {
    if (row.key.task.collective != collective) continue;
    const double off = std::fabs(log2_of(row.size) - log2_of(size));
    if (best == nullptr || off < std::fabs(log2_of(best->size) - log2_of(size))) best = &row;
  }
  return best;
}

CheckPlan make_check_plan(const TunePlan& tuned, const ConfigurationTable& table) {
  CheckPlan check;
  check.plan.options = tuned.options;
  for (std::size_t g = 0; g < tuned.base.groups.size(); ++g) {
    if (!takes_a_file(tuned.base.groups[g])) continue;
    CheckPlan::Place place{check.plan.base.groups.size(), check.plan.base.groups.size() + 1, {}};
    PlannedGroup plain = tuned.base.groups[g];
    plain.cells.clear();
    plain.knobs.erase(kDynamicRules);
    plain.id = stable_id(plain.id + "|plain");
    PlannedGroup loaded = plain;
    loaded.id = stable_id(plain.id + "|loaded");
    check.plan.base.groups.push_back(plain);
    check.plan.base.groups.push_back(std::move(loaded));
    std::set<Collective> seen;
    for (const TuneTask& task : tuned.tasks) {
      if (task.group != g || !seen.insert(task.cell.collective).second) continue;
      for (const std::uint64_t size : sizes_for(table, plain.backend, task.cell.collective)) {
        WorkCell cell = task.cell;
        cell.size = Bytes{size};
        if (!exists(cell, plain.ranks)) continue;
        place.tasks.push_back(check.plan.tasks.size());
        check.plan.tasks.push_back(task_for(check.plan, place, std::move(cell)));
      }
    }
    check.places.push_back(std::move(place));
  }
  if (check.places.empty())
    throw Error(
        ErrorKind::input,
        "no cell of this file can be checked: Open MPI and MPICH jobs load files of settings "
        "(NCCL's are checked on GPUs, `dynamiccl tune FILE --apply TABLE`)");
  return check;
}

Table check_export(CheckPlan& check, LaunchEvaluator& evaluator, ConfigurationTable& table,
                   int launches, Console& console) {
  Table answer;
  answer.columns = {"environment", "backend",    "ranks",     "collective", "size_bytes",
                    "setting",     "default_us", "loaded_us", "ratio",      "low",
                    "high",        "verdict",    "launches"};
  for (const CheckPlan::Place& place : check.places) {
    const auto first = evaluator.measure({{place.tasks.front(), 0}});
    if (first.empty()) break;
    PlaceCheck one(check, place, evaluator, first.front().regime_id);
    const PlannedGroup& group = one.group();
    const std::string label =
        fmt::format("{} {} {} ranks", group.environment, name_of(group.backend), group.ranks);
    const auto rows = rows_for(table.entries, first.front().regime_id, group);
    if (rows.empty() || all_default(rows)) {
      console.note(fmt::format("{}: {}", label,
                               rows.empty() ? "the table has no rows of this regime"
                                            : "the table keeps the library's defaults"));
      continue;
    }
    auto force = one.stretched(rows);
    console.note(
        fmt::format("{}: {} sizes with and without what the table is exported as, {} "
                    "launches each, then what is left of it again",
                    label, force.size(), launches));
    if (!one.measure(force, launches)) break;
    force = one.cut(std::move(force));
    const bool anything = !all_default(force);
    if (anything && !one.measure(force, launches)) break;
    if (!anything) console.note(label + ": nothing is left that is surely faster and harmless");
    add_rows(answer, group, force);
    std::erase_if(table.checks, [&](const TableEntry& old) {
      return !rows_for({old}, first.front().regime_id, group).empty();
    });
    table.checks.insert(table.checks.end(), force.begin(), force.end());
  }
  std::sort(table.checks.begin(), table.checks.end(), [](const TableEntry& a, const TableEntry& b) {
    return std::pair(a.key, a.size) < std::pair(b.key, b.size);
  });
  return answer;
}

}  // namespace dynamiccl
