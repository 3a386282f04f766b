#include "orchestrator/tune/check_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/digest.hpp"
#include "tuner/action/algorithm_rows.hpp"
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

/// Saved by a row, ln(default over tuned); a little where it was never measured.
double gain_of(const TableEntry& row) {
  const TableEvidence& e = row.evidence;
  return e.default_us > 0 && e.tuned_us > 0 ? std::log(e.default_us / e.tuned_us) : 0.01;
}

bool names_an_algorithm(const TableEntry& row) {
  if (row.setting.algorithm == "library") return false;
  return is_for_all_sizes(row.key.task.backend)
             ? !is_own_algorithm(row.setting.algorithm)
             : openmpi_algorithm(row.key.task.collective, row.setting.algorithm) > 0;
}

/// What the files would have in force at a task besides the launch settings.
std::optional<ActionSettings> algorithm_at(const std::vector<TableEntry>& rows,
                                           const TuneTask& task, Backend backend) {
  if (is_for_all_sizes(backend)) {
    const auto algorithms = mpich_algorithms(rows);
    const auto found = algorithms.find(task.cell.collective);
    if (found == algorithms.end()) return std::nullopt;
    return ActionSettings{found->second, {}, {}};
  }
  const TableEntry* row = nearest_row(rows, task.cell.collective, task.cell.size);
  if (row == nullptr || !names_an_algorithm(*row)) return std::nullopt;
  return ActionSettings{row->setting.algorithm, row->setting.call_knobs, {}};
}

/// A place's group under a set of launch settings; algorithms come from outside.
std::size_t add_group(CheckPlan& check, const CheckPlan::Place& place, const LaunchSettings& set) {
  PlannedGroup group = check.plan.base.groups[place.plain];
  if (backend_facts(group.backend).mca) group.knobs[kDynamicRules] = "1";
  for (const auto& [name, value] : set) group.knobs[name] = value;
  group.id = stable_id(group.id + "|set|" + knobs_key(set));
  check.plan.base.groups.push_back(std::move(group));
  return check.plan.base.groups.size() - 1;
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

std::vector<LaunchSettings> launch_sets(const std::vector<TableEntry>& rows, std::size_t most) {
  std::map<std::pair<std::string, std::string>, double> alone;
  std::map<LaunchSettings, double> together;
  std::vector<LaunchSettings> sets;
  for (const TableEntry& row : rows) {
    if (sets.empty() && names_an_algorithm(row)) sets.emplace_back();
    for (const auto& setting : row.setting.launch_knobs) alone[setting] += gain_of(row);
    if (row.setting.launch_knobs.size() > 1) together[row.setting.launch_knobs] += gain_of(row);
  }
  const auto by_gain = [](const auto& gains) {
    std::vector<std::pair<double, typename std::decay_t<decltype(gains)>::key_type>> order;
    for (const auto& [key, gain] : gains) order.emplace_back(-gain, key);
    std::sort(order.begin(), order.end());
    return order;
  };
  const auto add = [&](const LaunchSettings& set) {
    if (!set.empty() && sets.size() < most &&
        std::find(sets.begin(), sets.end(), set) == sets.end())
      sets.push_back(set);
  };
  LaunchSettings all;
  for (const auto& [gain, setting] : by_gain(alone)) all.insert(setting);
  add(all);
  for (const auto& [gain, setting] : by_gain(alone)) add({setting});
  for (const auto& [gain, set] : by_gain(together)) add(set);
  std::stable_sort(sets.begin(), sets.end(), [](const LaunchSettings& a, const LaunchSettings& b) {
    return a.size() < b.size();
  });
  return sets;
}

std::vector<std::string> add_sets(CheckPlan& check, CheckPlan::Place& place,
                                  const std::vector<TableEntry>& rows) {
  const PlannedGroup group = check.plan.base.groups[place.plain];
  std::set<std::string> idle;
  std::vector<TableEntry> acting = rows;
  for (TableEntry& row : acting)
    std::erase_if(row.setting.launch_knobs, [&](const auto& setting) {
      const bool acts = acts_between_ranks(setting.first, group, place.shared_memory);
      if (!acts) idle.insert(setting.first);
      return !acts;
    });
  place.sets = launch_sets(acting);
  place.algorithms.clear();
  for (const std::size_t t : place.tasks)
    place.algorithms.push_back(algorithm_at(acting, check.plan.tasks[t], group.backend));
  for (const LaunchSettings& set : place.sets) {
    const std::size_t index = add_group(check, place, set);
    for (std::size_t i = 0; i < place.tasks.size(); ++i) {
      TuneTask& task = check.plan.tasks[place.tasks[i]];
      task.runs.push_back({index, task.cell, 1});
      WorkCell cell = task.cell;
      if (const auto& setting = place.algorithms[i]) {
        cell.algorithm = setting->algorithm;
        cell.knobs = setting->call_knobs;
        cell.id = stable_id(
            fmt::format("{}|{}|{}", cell.id, setting->algorithm, knobs_key(setting->call_knobs)));
      }
      task.runs.push_back({index, std::move(cell), 1});
    }
  }
  return {idle.begin(), idle.end()};
}

CheckPlan make_check_plan(const Experiment& experiment, const TunePlan& tuned,
                          const ConfigurationTable& table) {
  CheckPlan check;
  check.plan.options = tuned.options;
  for (std::size_t g = 0; g < tuned.base.groups.size(); ++g) {
    if (!takes_a_file(tuned.base.groups[g])) continue;
    CheckPlan::Place place{check.plan.base.groups.size(),
                           check.plan.base.groups.size() + 1,
                           {},
                           shares_memory(experiment, tuned.base.groups[g])};
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
        "(NCCL's are checked on GPUs, `dynamiccl tune apply FILE TABLE`)");
  return check;
}

}  // namespace dynamiccl
