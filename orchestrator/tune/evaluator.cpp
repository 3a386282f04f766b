#include "orchestrator/tune/evaluator.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/statistics/statistics.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "orchestrator/launch/interrupt.hpp"
#include "orchestrator/plan/estimate.hpp"
#include "orchestrator/tune/work_time.hpp"
#include "train/spec/training.hpp"

namespace dynamiccl {

namespace {

/// The time until the target accuracy in place of a step's.
void take_time_to_target(Measured& measured, const std::vector<RankCell>& records) {
  const TimeToTarget time = time_to_target(records);
  measured.trial.time = Micros{time.trained_us};
  if (time.reached) return;
  measured.trial.ok = false;
  measured.missed = true;
  measured.reason = fmt::format("the target was not reached: accuracy {:.3f} when its epochs ended",
                                time.accuracy);
}

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
  if (!launch.end.regime_json.empty()) measured.regime = json_or_discarded(launch.end.regime_json);
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
      store_(store),
      console_(console),
      run_id_(run_id),
      run_folder_(site.run_folder),
      runner_({experiment.profiles, experiment.protocol, experiment.seed}, std::move(site), &store,
              console, run_id) {
  // A search ends when it is sure: nobody knows how many launches that takes.
  console_.expect(std::nullopt);
}

std::vector<Measured> LaunchEvaluator::measure(const std::vector<Ask>& asks) {
  const std::string salt = fmt::format("{}|{}", run_id_, round_++);
  const Plan plan = plan_for(plan_, asks, salt);
  store_.extend_run(run_id_, group_rows(experiment_, plan), cell_rows(plan));
  std::map<std::string, std::pair<const PlannedGroup*, GroupLaunch>> done;
  for (const PlannedGroup& group : plan.groups) {
    const Readiness& readiness = runner_.prepare_environment(group.environment);
    if (readiness.state != Readiness::State::ready && warned_.insert(group.environment).second)
      console_.warning(fmt::format("{} cannot run here: {}", group.environment, readiness.reason));
    interrupted_by_ = interrupt_signal();
    if (interrupted_by_ != 0) return {};
    GroupLaunch one = launch(group);
    interrupted_by_ = one.finished.interrupted_by;
    if (interrupted_by_ == 0) interrupted_by_ = interrupt_signal();
    if (interrupted_by_ != 0) return {};
    const LaunchEnd& end = one.finished.end;
    if (!end.regime_id.empty())
      regimes_[end.regime_id] = {end.regime_name, json_or_discarded(end.regime_json)};
    done.emplace(group.id, std::pair{&group, std::move(one)});
  }
  std::vector<Measured> results;
  results.reserve(asks.size());
  for (const Ask& ask : asks) {
    const ArmPlace place = place_of(plan_, ask, salt);
    const auto& [group, one] = done.at(place.group_id);
    results.push_back(measured_of(one.finished, place.cell_id, *group,
                                  experiment_.protocol.cells.rank_aggregation));
    const auto records = records_of(one.finished, place.cell_id);
    const TuneTask& task = plan_.tasks[ask.task];
    const double scale = task.runs.empty() ? 1 : task.runs[ask.arm].work_scale;
    double computing_us = computing_time(records).count() * scale;
    if (!task.runs.empty() && trains_to_target(task.runs[ask.arm].cell)) {
      if (results.back().trial.ok) {
        take_time_to_target(results.back(), records);
        // The launch went well, so that nothing else says why this choice is none.
        if (!results.back().trial.ok)
          console_.note(fmt::format("{}: {}", task.text(plan_, ask.arm), results.back().reason));
      }
      // Only steps of plain SGD are as many as its target needs.
      const bool plain = is_plain_sgd(training_spec(task.runs[ask.arm].cell));
      computing_us *= plain ? time_to_target(records).steps : 0;
    }
    results.back().trial.time = Micros{results.back().trial.time.count() * scale};
    if (computing_us > 0) computing_us_[ask.task].push_back(computing_us);
    results.back().origin = one.row;
  }
  return results;
}

double LaunchEvaluator::estimated_s(std::size_t launches, std::size_t measurements) const {
  double start_s = 0;
  double cell_s = 0;
  std::size_t cells = 0;
  for (const PlannedGroup& group : plan_.base.groups) {
    const auto& profile = experiment_.profiles.at(group.environment);
    PlannedGroup some = group;
    for (const PlannedCell& cell : group.cells) {
      some.cells = {cell};
      if (some.possible_cells() == 0) continue;
      const double one = estimated_launch(some, profile, experiment_.protocol).seconds();
      some.cells.push_back(cell);
      const double two = estimated_launch(some, profile, experiment_.protocol).seconds();
      cell_s += two - one;
      start_s += 2 * one - two;
      ++cells;
    }
  }
  if (cells == 0) return 0;
  return (start_s * static_cast<double>(launches) + cell_s * static_cast<double>(measurements)) /
         static_cast<double>(cells);
}

void LaunchEvaluator::expect(std::size_t measurements) {
  measured_ = 0;
  expected_ = measurements;
  began_ = std::chrono::steady_clock::now();
}

std::string LaunchEvaluator::progress() const {
  if (expected_ == 0 || measured_ == 0) return "";
  const std::size_t left = expected_ - std::min(expected_, measured_);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began_;
  return fmt::format(", {} of at most {}{}", measured_, counted(expected_, "measurement"),
                     left == 0 ? ""
                               : ", ETA " + format_eta(took.count() * static_cast<double>(left) /
                                                       static_cast<double>(measured_)));
}

GroupLaunch LaunchEvaluator::launch(const PlannedGroup& group) {
  const std::string label = fmt::format(
      "{} {} {} {}, {}", group.environment, name_of(group.backend), name_of(group.architecture),
      counted(group.ranks, "rank"), counted(group.cells.size(), "setting"));
  GroupLaunch last = runner_.launch(group, {0, 0, label});
  ++launches_;
  if (!last.ok() && last.finished.interrupted_by == 0) ++failed_;
  measured_ += group.cells.size();
  console_.launched(label + progress(), last.ok() ? "" : last.finished.end.reason,
                    last.finished.end.duration_s);
  return last;
}

}  // namespace dynamiccl
