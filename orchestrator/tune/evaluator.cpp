#include "orchestrator/tune/evaluator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/statistics/statistics.hpp"
#include "orchestrator/launch/identity.hpp"
#include "orchestrator/launch/interrupt.hpp"
#include "orchestrator/launch/noise_gate.hpp"
#include "profiles/detect/facts.hpp"

namespace dynamiccl {

/// A launch that ended, with its row.
struct LaunchEvaluator::Done {
  FinishedLaunch finished;
  std::int64_t row = 0;
};

namespace {

/// What the ranks left of one cell.
std::vector<RankCell> records_of(const FinishedLaunch& launch, const std::string& cell_id) {
  std::vector<RankCell> found;
  for (const RecordFile& file : launch.records)
    for (const Record& record : file.records)
      if (const auto* cell = std::get_if<CellRecord>(&record);
          cell != nullptr && cell->cell_id == cell_id)
        found.push_back({cell->rank, cell});
  return found;
}

Measured measured_of(const FinishedLaunch& launch, const std::string& cell_id,
                     const PlannedGroup& group, RankAggregation aggregation) {
  Measured measured;
  measured.regime_id = launch.end.regime_id;
  if (!launch.end.regime_json.empty())
    measured.regime = nlohmann::json::parse(launch.end.regime_json, nullptr, false);
  const auto records = records_of(launch, cell_id);
  measured.trial.ok = launch.end.status == LaunchStatus::ok &&
                      records.size() == static_cast<std::size_t>(group.ranks);
  measured.reason = launch.end.reason;
  for (const RankCell& one : records) {
    if (one.record->status == CellStatus::ok) continue;
    measured.trial.ok = false;
    measured.reason = one.record->reason;
  }
  if (!measured.trial.ok) return measured;
  const auto summary = summarise(records, aggregation);
  if (!summary) {
    measured.trial.ok = false;
    measured.reason = "no samples";
    return measured;
  }
  const CellRecord& first = *records.front().record;
  measured.trial.time = Micros{summary->median_us};
  measured.applied = first.algorithm;
  measured.calls = static_cast<std::int64_t>(summary->n) * first.batch;
  return measured;
}

}  // namespace

Micros computing_time(const std::vector<RankCell>& cell) {
  double slowest_us = 0;
  for (const RankCell& one : cell)
    if (one.record->training) slowest_us = std::max(slowest_us, one.record->training->compute_us);
  return Micros{slowest_us};
}

Micros LaunchEvaluator::allowed_time(std::size_t task) const {
  const auto found = computing_us_.find(task);
  return Micros{found == computing_us_.end() ? 0 : median(found->second)};
}

LaunchEvaluator::LaunchEvaluator(const Experiment& experiment, const TunePlan& plan,
                                 LaunchSite site, Store& store, Console& console,
                                 const std::string& run_id)
    : experiment_(experiment),
      plan_(plan),
      site_(std::move(site)),
      store_(store),
      console_(console),
      run_id_(run_id),
      pool_(run_id, {site_.worker_folder, site_.run_folder}) {}

LaunchEvaluator::~LaunchEvaluator() {
  for (const std::string& problem : pool_.stop_all()) console_.warning(problem);
}

void LaunchEvaluator::prepare_environment(const std::string& name) {
  if (!prepared_.emplace(name, true).second) return;
  try {
    prepare(experiment_.profiles.at(name), preparation_progress());
  } catch (const Error& error) {
    if (interrupt_signal() != 0) return;
    if (error.kind() != ErrorKind::environment) throw;
    left_out_[name] = error.what();
    console_.warning(fmt::format("{} cannot run here: {}", name, error.what()));
  }
}

std::vector<Measured> LaunchEvaluator::measure(const std::vector<Ask>& asks) {
  const std::string salt = fmt::format("{}|{}", run_id_, round_++);
  const Plan plan = plan_for(plan_, asks, salt);
  store_.extend_run(run_id_, group_rows(experiment_, plan), cell_rows(plan));
  console_.expect(plan.groups.size());
  std::map<std::string, std::pair<const PlannedGroup*, Done>> done;
  for (const PlannedGroup& group : plan.groups) {
    prepare_environment(group.environment);
    interrupted_by_ = interrupt_signal();
    if (interrupted_by_ != 0) return {};
    Done one = launch(group);
    interrupted_by_ = one.finished.interrupted_by;
    if (interrupted_by_ == 0) interrupted_by_ = interrupt_signal();
    if (interrupted_by_ != 0) return {};
    const LaunchEnd& end = one.finished.end;
    if (!end.regime_id.empty())
      regimes_[end.regime_id] = {end.regime_name,
                                 nlohmann::json::parse(end.regime_json, nullptr, false)};
    done.emplace(group.id, std::pair{&group, std::move(one)});
  }
  std::vector<Measured> results;
  results.reserve(asks.size());
  for (const Ask& ask : asks) {
    const ArmPlace place = place_of(plan_, ask, salt);
    const auto& [group, one] = done.at(place.group_id);
    results.push_back(measured_of(one.finished, place.cell_id, *group,
                                  experiment_.protocol.cells.rank_aggregation));
    const TuneTask& task = plan_.tasks[ask.task];
    const double scale = task.runs.empty() ? 1 : task.runs[ask.arm].work_scale;
    results.back().trial.time = Micros{results.back().trial.time.count() * scale};
    const double computing_us =
        computing_time(records_of(one.finished, place.cell_id)).count() * scale;
    if (computing_us > 0) computing_us_[ask.task].push_back(computing_us);
    results.back().origin = one.row;
  }
  return results;
}

LaunchEvaluator::Done LaunchEvaluator::launch(const PlannedGroup& group) {
  Done last;
  for (int number = 0; number <= experiment_.protocol.retries; ++number) {
    last = attempt(group, number);
    if (last.finished.end.status == LaunchStatus::ok || last.finished.interrupted_by != 0) break;
    // A failed launch may have spoiled its surroundings.
    const std::string problem = pool_.drop(experiment_.profiles.at(group.environment), group.ranks);
    if (!problem.empty()) console_.warning(problem);
  }
  ++launches_;
  const bool ok = last.finished.end.status == LaunchStatus::ok;
  if (!ok && last.finished.interrupted_by == 0) ++failed_;
  console_.launched(
      fmt::format("{} {} {} {} ranks, {} settings", group.environment, name_of(group.backend),
                  name_of(group.architecture), group.ranks, group.cells.size()),
      ok ? "" : last.finished.end.reason, last.finished.end.duration_s);
  return last;
}

LaunchEvaluator::Done LaunchEvaluator::attempt(const PlannedGroup& group, int number) {
  const EnvironmentProfile& profile = experiment_.profiles.at(group.environment);
  Done done;
  const auto not_started = [&](const std::string& why) {
    LaunchStart start;
    start.uuid = random_uuid();
    start.group_id = group.id;
    start.attempt = number;
    done.finished.end.status = LaunchStatus::failed;
    done.finished.end.reason = why;
    done.finished.interrupted_by = interrupt_signal();
    done.row = store_.begin_launch(run_id_, start);
    store_.finish_launch(done.row, done.finished.end, {});
    return std::move(done);
  };
  if (left_out_.contains(group.environment)) return not_started(left_out_.at(group.environment));
  Environment* environment = nullptr;
  try {
    environment = &pool_.get(profile, group.ranks);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::environment) throw;
    return not_started(std::string("the environment did not start: ") + error.what());
  }
  auto launch = prepare_launch(group, profile, *environment, site_, experiment_.protocol,
                               launch_seed(experiment_.seed, group.id, 0, number));
  launch.start.attempt = number;
  launch.noise_before = quiet_window(experiment_.protocol.noise, site_.cores);
  launch.start.noise_json = launch.noise_before.dump();
  done.row = store_.begin_launch(run_id_, launch.start);
  done.finished = run_launch(launch, profile, *environment, site_, experiment_.protocol,
                             console_.verbose()
                                 ? [](const std::string& text) { fmt::print(stderr, "{}", text); }
                                 : std::function<void(const std::string&)>());
  store_.finish_launch(done.row, done.finished.end, done.finished.records);
  if (done.finished.end.status == LaunchStatus::ok && !site_.keep_files)
    remove_launch_folder(launch);
  return done;
}

}  // namespace dynamiccl
