#include "orchestrator/executor.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/text.hpp"
#include "orchestrator/identity.hpp"
#include "orchestrator/interrupt.hpp"
#include "profiles/detect/facts.hpp"

namespace dynamiccl {

Executor::Executor(const Experiment& experiment, const Plan& plan, LaunchSite site, Store& store,
                   Console& console)
    : experiment_(experiment),
      plan_(plan),
      site_(std::move(site)),
      store_(store),
      console_(console) {}

const EnvironmentProfile& Executor::profile_of(const PlannedGroup& group) const {
  return experiment_.profiles.at(group.environment);
}

std::string Executor::label(const PlannedGroup& group, int block) const {
  std::string knobs;
  for (const auto& [name, value] : group.knobs) knobs += fmt::format(" {}={}", name, value);
  return fmt::format("{} {} {} {} rank{}{}, block {}", group.environment, name_of(group.backend),
                     name_of(group.architecture), group.ranks, group.ranks == 1 ? "" : "s", knobs,
                     block + 1);
}

bool Executor::wanted(const PlannedGroup& group, int block) const {
  return group.possible_cells() > 0 && !left_out_.contains(group.environment) &&
         !finished_.contains({group.id, block});
}

std::size_t Executor::remaining() const {
  std::size_t count = 0;
  for (int block = 0; block < experiment_.protocol.launches; ++block) {
    for (const auto& group : plan_.groups) count += wanted(group, block) ? 1 : 0;
  }
  return count;
}

void Executor::leave_out(const std::string& environment, const std::string& reason) {
  left_out_.insert(environment);
  console_.warning(fmt::format("{} cannot run here: {}", environment, reason));
  for (const auto& group : plan_.groups) {
    if (group.environment == environment && group.possible_cells() > 0)
      store_.mark_unsupported(summary_.run_id, group.id, reason);
  }
}

void Executor::prepare_environments() {
  std::set<std::string> needed;
  for (const auto& group : plan_.groups) {
    if (group.possible_cells() > 0) needed.insert(group.environment);
  }
  for (const auto& name : needed) {
    if (interrupt_signal() != 0) return;
    try {
      prepare(experiment_.profiles.at(name),
              [](const std::string& step) { fmt::print(stderr, "  {}\n", step); });
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::environment) throw;
      leave_out(name, error.what());
    }
  }
}

RunSummary Executor::run(const RunInfo& info, const std::optional<std::string>& resumed) {
  summary_ = RunSummary{};
  summary_.run_id = resumed.value_or(info.id);
  if (resumed) {
    store_.resume_run(*resumed);
    finished_ = store_.finished_launches(*resumed);
  } else {
    store_.begin_run(info, group_rows(experiment_, plan_), cell_rows(plan_));
  }
  site_.run_folder = fmt::format("{}/{}", site_.run_folder, summary_.run_id);
  std::filesystem::create_directories(site_.run_folder);
  try {
    prepare_environments();
    console_.expect(remaining());
    for (int block = 0; block < experiment_.protocol.launches; ++block) run_block(block);
  } catch (...) {
    store_.end_run(summary_.run_id, "failed");
    throw;
  }
  store_.end_run(summary_.run_id, summary_.interrupted_by == 0 ? "complete" : "interrupted");
  std::error_code ignored;
  std::filesystem::remove(site_.run_folder, ignored);  // only when nothing was kept in it
  return summary_;
}

void Executor::run_block(int block) {
  EnvironmentPool pool(summary_.run_id, {site_.worker_folder, site_.run_folder});
  const auto order = block_order(plan_.groups.size(), experiment_.seed, block);
  int position = 0;
  for (const std::size_t index : order) {
    if (summary_.interrupted_by == 0) summary_.interrupted_by = interrupt_signal();
    if (summary_.interrupted_by != 0) break;
    const auto& group = plan_.groups[index];
    if (wanted(group, block)) run_group(group, block, position, pool);
    ++position;
  }
  for (const auto& problem : pool.stop_all()) note_left_over(problem);
}

void Executor::note_left_over(const std::string& problem) {
  if (problem.empty()) return;
  console_.warning(problem);
  store_.add_event(summary_.run_id, std::nullopt, "left-over", problem);
}

void Executor::run_group(const PlannedGroup& group, int block, int position,
                         EnvironmentPool& pool) {
  const int first = store_.next_attempt(summary_.run_id, group.id, block);
  FinishedLaunch last;
  for (int number = first; number <= first + experiment_.protocol.retries; ++number) {
    last = attempt(group, block, position, number, pool);
    summary_.interrupted_by = last.interrupted_by;
    if (last.end.status == LaunchStatus::ok || last.interrupted_by != 0) break;
    note_left_over(pool.drop(profile_of(group), group.ranks));
    if (number < first + experiment_.protocol.retries)
      console_.warning(fmt::format("{}: attempt {} failed, trying again: {}", label(group, block),
                                   number + 1, last.end.reason));
  }
  if (last.interrupted_by != 0) return;
  ++summary_.launches;
  summary_.failed_cells += last.failed_cells;
  if (last.end.status != LaunchStatus::ok) ++summary_.failed_launches;
  std::string reason = last.end.status == LaunchStatus::ok ? "" : last.end.reason;
  if (reason.empty() && last.failed_cells > 0)
    reason = fmt::format("{} cell{} with a wrong result", last.failed_cells,
                         last.failed_cells == 1 ? "" : "s");
  console_.launched(label(group, block), reason, last.end.duration_s);
}

FinishedLaunch Executor::attempt(const PlannedGroup& group, int block, int position, int number,
                                 EnvironmentPool& pool) {
  const auto& profile = profile_of(group);
  Environment* environment = nullptr;
  try {
    environment = &pool.get(profile, group.ranks);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::environment) throw;
    return environment_failed(group, block, position, number, error.what());
  }
  if (interrupt_signal() != 0) {
    FinishedLaunch nothing;
    nothing.end.status = LaunchStatus::interrupted;
    nothing.interrupted_by = interrupt_signal();
    return nothing;
  }
  auto launch = prepare_launch(group, profile, *environment, site_, experiment_.protocol,
                               launch_seed(experiment_.seed, group.id, block, number));
  launch.start.block = block;
  launch.start.attempt = number;
  launch.start.position = position;
  const auto noise = probe_noise();
  launch.start.noise_json = noise.dump();
  const auto row = store_.begin_launch(summary_.run_id, launch.start);
  auto finished = run_launch(launch, profile, *environment, site_, experiment_.protocol,
                             console_.verbose()
                                 ? [](const std::string& text) { fmt::print(stderr, "{}", text); }
                                 : std::function<void(const std::string&)>());
  finished.end.noise_json = noise_between(noise, probe_noise()).dump();
  store_.finish_launch(row, finished.end, finished.records);
  if (finished.end.status == LaunchStatus::ok && !site_.keep_files) remove_launch_folder(launch);
  return finished;
}

FinishedLaunch Executor::environment_failed(const PlannedGroup& group, int block, int position,
                                            int number, const std::string& reason) {
  LaunchStart start;
  start.uuid = random_uuid();
  start.group_id = group.id;
  start.block = block;
  start.attempt = number;
  start.position = position;
  start.run_json = start.environment_json = start.container_json = start.noise_json = "{}";
  FinishedLaunch finished;
  finished.interrupted_by = interrupt_signal();
  finished.end.status =
      finished.interrupted_by != 0 ? LaunchStatus::interrupted : LaunchStatus::failed;
  finished.end.reason = "the environment did not start: " + reason;
  finished.end.exit_code = -1;
  finished.end.noise_json = "{}";
  store_.finish_launch(store_.begin_launch(summary_.run_id, start), finished.end, {});
  return finished;
}

std::vector<GroupInfo> group_rows(const Experiment& experiment, const Plan& plan) {
  std::vector<GroupInfo> rows;
  for (const auto& group : plan.groups) {
    rows.push_back({group.id, group.environment, to_json(experiment.profiles.at(group.environment)),
                    std::string(name_of(group.backend)), std::string(name_of(group.architecture)),
                    group.ranks, nlohmann::json(group.knobs).dump()});
  }
  return rows;
}

std::vector<CellInfo> cell_rows(const Plan& plan) {
  std::vector<CellInfo> rows;
  rows.reserve(plan.cell_count());
  for (const auto& group : plan.groups) {
    for (const auto& cell : group.cells) {
      rows.push_back({cell.work.id, group.id, std::string(name_of(cell.work.collective)),
                      cell.work.size.count(), std::string(name_of(cell.work.datatype)),
                      cell.work.algorithm, cell.work.in_place,
                      nlohmann::json(cell.work.knobs).dump(), cell.impossible});
    }
  }
  return rows;
}

}  // namespace dynamiccl
