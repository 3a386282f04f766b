#include "orchestrator/tune/samples.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/vocabulary/malloc_settings.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/setting.hpp"
#include "orchestrator/tune/work_time.hpp"
#include "reports/model/table_view.hpp"

namespace dynamiccl {

std::string find_sweep(const Reader& reader, const std::string& experiment_name,
                       const std::string& file) {
  const Table found = reader.query(
      "SELECT r.uuid AS run_id FROM run r JOIN experiment e ON e.id = r.experiment_id "
      "WHERE r.name = ?1 AND EXISTS (SELECT 1 FROM json_each(e.overrides_json) WHERE value = ?2) "
      "ORDER BY r.id DESC LIMIT 1",
      {experiment_name, std::string(kSweepMark)});
  if (found.rows.empty())
    throw Error(ErrorKind::input,
                fmt::format("{} holds no sweep of {}; make one with\n  dynamiccl tune sweep {} "
                            "--db {}",
                            reader.path(), file, file, reader.path()));
  return TableView(found).text(0, "run_id");
}

bool measured_huge_pages(const Reader& reader, const std::string& run_id) {
  const Table found = reader.query(
      "SELECT 1 FROM plan_group g JOIN run r ON r.id = g.run_id WHERE r.uuid = ?1 AND EXISTS "
      "(SELECT 1 FROM json_each(g.knobs_json) WHERE key = ?2) LIMIT 1",
      {run_id, setting_text(SettingScope::malloc, kHugePagesSetting)});
  return !found.rows.empty();
}

bool measured_ll128(const Reader& reader, const std::string& run_id) {
  const Table found = reader.query(
      "SELECT 1 FROM plan_group g JOIN run r ON r.id = g.run_id WHERE r.uuid = ?1 AND EXISTS "
      "(SELECT 1 FROM json_each(g.knobs_json) WHERE key = ?2 AND value LIKE '%:LL128%') LIMIT 1",
      {run_id, setting_text(SettingScope::env, "NCCL_PROTO")});
  return !found.rows.empty();
}

void keep_measured_cells(Plan& plan, const Reader& reader, const std::string& run_id) {
  const Table rows = reader.query(
      "SELECT DISTINCT cell_id FROM v_measurement WHERE run_id = ?1 AND counts", {run_id});
  const TableView view(rows);
  std::set<std::string> measured;
  for (std::size_t row = 0; row < view.size(); ++row) measured.insert(view.text(row, "cell_id"));
  for (PlannedGroup& group : plan.groups)
    for (PlannedCell& cell : group.cells)
      if (!measured.contains(cell.work.id)) cell.impossible = "run " + run_id + " has no figure";
}

namespace {

/// Tasks without any sample leave plan and samples alike.
void drop_unmeasured(TunePlan& plan, std::vector<SampledTask>& tasks) {
  std::size_t kept = 0;
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    const auto& arms = tasks[t].arm_us;
    if (std::all_of(arms.begin(), arms.end(), [](const auto& arm) { return arm.empty(); }))
      continue;
    if (kept != t) {
      tasks[kept] = std::move(tasks[t]);
      plan.tasks[kept] = std::move(plan.tasks[t]);
    }
    ++kept;
  }
  tasks.resize(kept);
  plan.tasks.resize(kept);
}

}  // namespace

std::vector<SampledTask> load_samples(const Reader& reader, TunePlan& plan,
                                      const std::string& run_id) {
  std::vector<SampledTask> tasks;
  std::map<std::string, Ask> arms;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    SampledTask task;
    task.search = plan.tasks[t].search;
    task.held_out = plan.tasks[t].held_out;
    task.arm_us.resize(plan.tasks[t].arms());
    task.arm_launch.resize(task.arm_us.size());
    for (std::size_t a = 0; a < task.arm_us.size(); ++a)
      arms[place_of(plan, {t, a}, "").cell_id] = {t, a};
    tasks.push_back(std::move(task));
  }
  const Table rows = reader.query(
      fmt::format("SELECT m.cell_id AS cell_id, {} AS time_us, m.regime_id AS regime_id, "
                  "m.launch_row AS launch_row, l.regime_json AS regime_json FROM v_measurement m "
                  "JOIN launch l ON l.id = m.launch_row WHERE m.run_id = ?1 AND m.counts AND "
                  "m.median_us > 0 ORDER BY m.block",
                  work_time_sql("m")),
      {run_id});
  const TableView view(rows);
  std::set<Ask> missed;
  for (std::size_t row = 0; row < view.size(); ++row) {
    const auto arm = arms.find(view.text(row, "cell_id"));
    if (arm == arms.end()) continue;
    // Who misses the target in any launch is no choice.
    const auto time_us = view.real(row, "time_us");
    if (!time_us) missed.insert(arm->second);
    if (missed.contains(arm->second)) continue;
    SampledTask& task = tasks[arm->second.task];
    task.arm_us[arm->second.arm].push_back(*time_us);
    task.arm_launch[arm->second.arm].push_back(view.integer(row, "launch_row"));
    if (!task.regime_id.empty()) continue;
    task.regime_id = view.text(row, "regime_id");
    task.regime = json_or_discarded(view.text(row, "regime_json"));
  }
  for (const Ask& ask : missed) {
    tasks[ask.task].arm_us[ask.arm].clear();
    tasks[ask.task].arm_launch[ask.arm].clear();
  }
  drop_unmeasured(plan, tasks);
  if (tasks.empty())
    throw Error(ErrorKind::input,
                fmt::format("run {} measured none of these cells; `dynamiccl query coverage --run "
                            "{}` shows what it measured",
                            run_id, run_id));
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    const std::size_t launches = tasks[t].arm_us[0].size();
    if (launches < 3)
      throw Error(ErrorKind::input,
                  fmt::format("run {}: {} in {} has {} good launches of its default, a replay "
                              "needs 3; sweep with more (tune.sweep_launches), or leave the cell "
                              "out with --only",
                              run_id, plan.tasks[t].search.task.key.task.text(),
                              plan.tasks[t].environment, launches));
  }
  return tasks;
}

}  // namespace dynamiccl
