#include "orchestrator/run/executor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/launch/integrity.hpp"
#include "orchestrator/launch/interrupt.hpp"
#include "orchestrator/run/held_folder.hpp"
#include "orchestrator/run/run_setup.hpp"
#include "orchestrator/run/stopping.hpp"

namespace dynamiccl {

Executor::Executor(const Experiment& experiment, const Plan& plan, LaunchSite site, Store& store,
                   Console& console)
    : experiment_(experiment),
      plan_(plan),
      site_(std::move(site)),
      store_(store),
      console_(console) {}

std::string Executor::label(const PlannedGroup& group, int block) const {
  std::string knobs;
  for (const auto& [name, value] : group.knobs) knobs += fmt::format(" {}={}", name, value);
  return fmt::format("{} {} {} {} rank{}{}, block {}", group.environment, name_of(group.backend),
                     name_of(group.architecture), group.ranks, group.ranks == 1 ? "" : "s", knobs,
                     block + 1);
}

bool Executor::wanted(const PlannedGroup& group, int block) const {
  return group.possible_cells() > 0 && !left_out_.contains(group.environment) &&
         !settled_.contains(group.id) && !finished_.contains({group.id, block});
}

bool Executor::any_wanted(int block) const {
  return block < most_launches(experiment_.protocol) &&
         std::ranges::any_of(plan_.groups, [&](const auto& group) { return wanted(group, block); });
}

std::size_t Executor::remaining() const {
  std::size_t count = 0;
  for (int block = 0; block < first_launches(experiment_.protocol); ++block) {
    for (const auto& group : plan_.groups) count += wanted(group, block) ? 1 : 0;
  }
  return count;
}

std::chrono::seconds Executor::longest_launch() const {
  double longest_s = 0;
  for (const auto& group : plan_.groups)
    longest_s =
        std::max(longest_s, launch_timeout(experiment_.protocol, launch_cells(group, 0)).seconds());
  return std::chrono::seconds(static_cast<long>(std::ceil(longest_s)));
}

void Executor::leave_out(const std::string& environment, const std::string& reason) {
  left_out_.insert(environment);
  console_.warning(fmt::format("{} cannot run here: {}", environment, reason));
  for (const auto& group : plan_.groups) {
    if (group.environment == environment && group.possible_cells() > 0)
      store_.mark_unsupported(summary_.run_id, group.id, reason);
  }
}

/// One failed launch per group that still lacks some: a result as good as any other attempt's.
void Executor::fail_environment(const std::string& environment, const std::string& reason) {
  console_.warning(fmt::format("{} did not come up: {}", environment, reason));
  for (const auto& group : plan_.groups) {
    if (group.environment != environment) continue;
    int block = 0;
    while (block < first_launches(experiment_.protocol) && !wanted(group, block)) ++block;
    if (block == first_launches(experiment_.protocol)) continue;
    runner_->not_started(group, {block, 0, label(group, block)},
                         store_.next_attempt(summary_.run_id, group.id, block),
                         "the environment did not start: " + reason);
    ++summary_.launches;
    ++summary_.failed_launches;
  }
  left_out_.insert(environment);
  summary_.not_prepared.push_back(environment);
}

bool Executor::has_launches(const std::string& environment) const {
  return std::any_of(plan_.groups.begin(), plan_.groups.end(), [&](const PlannedGroup& group) {
    return group.environment == environment &&
           std::any_of(finished_.begin(), finished_.end(),
                       [&](const LaunchKey& key) { return key.group_id == group.id; });
  });
}

/// What this run has measured in is not impossible by nature, whatever is seen of it now: launches
/// that are missing there keep the run from being complete.
void Executor::note_impossible_now() {
  for (const auto& group : plan_.groups) {
    if (group.possible_cells() > 0 || group.cells.empty()) continue;
    const bool measured =
        std::any_of(finished_.begin(), finished_.end(),
                    [&](const LaunchKey& key) { return key.group_id == group.id; });
    bool missing = false;
    for (int block = 0; block < first_launches(experiment_.protocol); ++block)
      missing = missing || !finished_.contains({group.id, block});
    if (!measured || !missing) continue;
    console_.warning(
        fmt::format("{} lacks launches that it can no longer have: {}; fix that and "
                    "resume again",
                    group.environment, group.cells.front().impossible));
    summary_.not_prepared.push_back(group.environment);
  }
}

void Executor::prepare_environments() {
  std::set<std::string> needed;
  for (const auto& group : plan_.groups) {
    if (group.possible_cells() > 0) needed.insert(group.environment);
  }
  for (const auto& name : needed) {
    if (interrupt_signal() != 0) return;
    const Readiness& readiness = runner_->prepare_environment(name);
    using State = Readiness::State;
    if (readiness.state == State::interrupted) return;
    // What this run has measured in before is not impossible by nature: it failed to come up now,
    // and the run can be resumed.
    if (readiness.state == State::failed ||
        (readiness.state == State::unsupported && has_launches(name)))
      fail_environment(name, readiness.reason);
    else if (readiness.state == State::unsupported)
      leave_out(name, readiness.reason);
  }
}

/// A group is what its resolved profile says: where that has changed, two things would get one
/// name.
void Executor::refuse_changed_plan(const std::string& run) const {
  const auto stored = store_.planned_groups(run);
  std::set<std::string> changed;
  for (const auto& group : plan_.groups)
    if (!stored.contains(group.id)) changed.insert(group.environment);
  if (!changed.empty())
    throw Error(ErrorKind::input,
                fmt::format("run {} cannot be resumed: what it planned in {} is something else by "
                            "now (a profile or this program has changed since); start it anew "
                            "without --resume",
                            run, join({changed.begin(), changed.end()}, ", ")));
}

RunSummary Executor::run(const RunInfo& info, const std::optional<std::string>& resumed) {
  summary_ = RunSummary{};
  summary_.run_id = resumed.value_or(info.id);
  if (resumed) refuse_changed_plan(*resumed);
  site_.run_folder = fmt::format("{}/{}", site_.run_folder, summary_.run_id);
  make_folder(site_.run_folder, "choose another place with --out");
  // Settings and records are the user's, and ranks meet by files in it.
  std::error_code of_other_systems;
  std::filesystem::permissions(site_.run_folder, std::filesystem::perms::owner_all,
                               of_other_systems);
  runner_.emplace(LaunchTerms{experiment_.profiles, experiment_.protocol, experiment_.seed}, site_,
                  &store_, console_, summary_.run_id);
  if (replayed_) runner_->replay(*replayed_);
  if (resumed) {
    store_.resume_run(*resumed);
    store_.replan_cells(*resumed, cell_rows(plan_));
    finished_ = store_.finished_launches(*resumed);
    runner_->cadences().note(plan_, store_.settled_batches(*resumed));
  } else {
    store_.begin_run(info, group_rows(experiment_, plan_), cell_rows(plan_));
  }
  if (!batch_job_.empty()) store_.add_event(summary_.run_id, std::nullopt, "slurm-job", batch_job_);
  try {
    if (site_.cluster) site_.cluster->expect(remaining(), longest_launch());
    prepare_environments();
    console_.expect(remaining());
    run_blocks();
  } catch (...) {
    try {
      store_.end_run(summary_.run_id, "failed");
    } catch (const Error&) {
      // The first error tells more: this one may follow from it.
    }
    throw;
  }
  if (resumed) note_impossible_now();
  const char* end = summary_.not_prepared.empty() ? "complete" : "failed";
  store_.end_run(summary_.run_id, summary_.interrupted_by == 0 ? end : "interrupted");
  std::error_code ignored;
  std::filesystem::remove(site_.run_folder, ignored);  // only when nothing was kept in it
  return summary_;
}

bool Executor::block_is_affordable(double elapsed_s, double block_s) {
  const double budget_s = experiment_.protocol.time_budget.seconds();
  if (budget_s <= 0 || elapsed_s + block_s <= budget_s) return true;
  console_.note(
      fmt::format("time budget: {:.0f} s are used, a block takes about {:.0f} s of the "
                  "{:g} s: no further block begins",
                  elapsed_s, block_s, budget_s));
  return false;
}

void Executor::run_blocks() {
  const auto began = std::chrono::steady_clock::now();
  const auto elapsed_s = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  double block_s = 0;
  std::string stopped_by = "max_launches";
  settle_groups();
  for (int block = 0; block < most_launches(experiment_.protocol); ++block) {
    if (!any_wanted(block)) continue;
    if (block_s > 0 && !block_is_affordable(elapsed_s(), block_s)) {
      stopped_by = "time_budget";
      break;
    }
    if (block >= first_launches(experiment_.protocol)) announce_further(block);
    const double start_s = elapsed_s();
    run_block(block);
    block_s = elapsed_s() - start_s;
    if (summary_.interrupted_by != 0) {
      stopped_by = "interrupted";
      break;
    }
    settle_groups();
    if (block + 1 == kFirstLook && any_wanted(block + 1)) look_first();
  }
  store_stopping(stopped_by);
}

void Executor::look_first() {
  if (!first_look_) return;
  try {
    first_look_(summary_.run_id);
  } catch (const std::exception& error) {  // no reason to end what is measured well
    console_.warning(fmt::format("no first answer: {}", error.what()));
  }
}

void Executor::announce_further(int block) {
  const auto wide = static_cast<std::size_t>(
      std::count_if(plan_.groups.begin(), plan_.groups.end(),
                    [&](const auto& group) { return wanted(group, block); }));
  console_.note(fmt::format("block {}: {} with an interval wider than {:g} %", block + 1,
                            counted(wide, "group"), experiment_.protocol.target_interval * 100));
  console_.expect(wide);
}

std::map<std::string, std::vector<CellMedians>> Executor::medians_by_group() const {
  std::map<std::string, std::vector<CellMedians>> groups;
  for (auto& cell : store_.launch_medians(summary_.run_id))
    groups[cell.group_id].push_back(std::move(cell));
  return groups;
}

void Executor::settle_groups() {
  const auto rule = stopping_rule(experiment_.protocol);
  if (!rule) return;
  for (const auto& [id, cells] : medians_by_group()) {
    if (progress_of(cells, *rule).reached && settled_.insert(id).second)
      console_.detail(fmt::format("group {}: every interval is within {:g} %", id,
                                  rule->target_relative_half_width * 100));
  }
}

void Executor::store_stopping(const std::string& stopped_by) {
  const auto& protocol = experiment_.protocol;
  if (protocol.target_interval <= 0 && protocol.time_budget.count() <= 0) return;
  const auto rule = stopping_rule(protocol);
  const auto medians = medians_by_group();
  std::size_t reached = 0;
  for (const auto& group : plan_.groups) {
    const auto found = medians.find(group.id);
    if (found == medians.end()) continue;
    const auto progress = progress_of(found->second, rule.value_or(StoppingRule{}));
    reached += progress.reached ? 1 : 0;
    store_.set_stopping(
        summary_.run_id, group.id,
        stopping_json(progress, protocol, rule && progress.reached ? "target" : stopped_by).dump());
  }
  if (rule)
    console_.note(fmt::format("target interval {:g} %: reached by {}",
                              protocol.target_interval * 100,
                              counted_of(reached, medians.size(), "group")));
}

void Executor::run_block(int block) {
  const auto order = block_order(plan_.groups.size(), experiment_.seed, block);
  int position = 0;
  for (const std::size_t index : order) {
    if (summary_.interrupted_by == 0) summary_.interrupted_by = interrupt_signal();
    if (summary_.interrupted_by != 0) break;
    const auto& group = plan_.groups[index];
    if (wanted(group, block)) run_group(group, block, position);
    ++position;
  }
  runner_->stop_environments();
}

void Executor::run_group(const PlannedGroup& group, int block, int position) {
  const auto done = runner_->launch(group, {block, position, label(group, block)});
  const FinishedLaunch& last = done.finished;
  summary_.interrupted_by = last.interrupted_by;
  if (last.interrupted_by != 0) return;
  ++summary_.launches;
  summary_.failed_cells += last.failed_cells;
  if (!done.ok()) ++summary_.failed_launches;
  std::string reason = done.ok() ? "" : last.end.reason;
  if (reason.empty() && last.failed_cells > 0) reason = failed_cells_text(last.records);
  console_.launched(label(group, block), reason, last.end.duration_s);
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
