#include "orchestrator/run/launch_runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "containers/unsupported.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/messages.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "orchestrator/launch/identity.hpp"
#include "orchestrator/launch/interrupt.hpp"
#include "orchestrator/launch/noise_gate.hpp"
#include "orchestrator/run/launch_folders.hpp"
#include "orchestrator/run/runs_beside.hpp"
#include "orchestrator/run/stored_decisions.hpp"
#include "profiles/detect/pair_places.hpp"

namespace dynamiccl {
namespace {

FinishedLaunch interrupted_before() {
  FinishedLaunch nothing;
  nothing.end.status = LaunchStatus::interrupted;
  nothing.interrupted_by = interrupt_signal();
  return nothing;
}

}  // namespace

LaunchRunner::LaunchRunner(LaunchTerms terms, LaunchSite site, Store* store, Console& console,
                           std::string run_id)
    : terms_(std::move(terms)),
      site_(std::move(site)),
      store_(store),
      console_(console),
      run_id_(std::move(run_id)),
      pool_(run_id_, {site_.run_folder}, site_.cluster, {site_.worker_folder}) {}

LaunchRunner::~LaunchRunner() {
  for (const auto& problem : pool_.stop_all()) console_.warning(problem);
}

const EnvironmentProfile& LaunchRunner::profile_of(const PlannedGroup& group) const {
  return terms_.profiles.at(group.environment);
}

const Readiness& LaunchRunner::prepare_environment(const std::string& name) {
  const auto known = readiness_.find(name);
  if (known != readiness_.end()) return known->second;
  using enum Readiness::State;
  try {
    const auto& profile = terms_.profiles.at(name);
    // Engines of the nodes are made ready when containers start there.
    if (!site_.cluster || !profile.in_engine()) prepare(profile, preparation_progress());
    hold_nodes();
  } catch (const UnsupportedError& error) {
    return readiness_[name] = {unsupported, error.what()};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::environment) throw;
    const Readiness::State state = interrupt_signal() != 0 ? interrupted : failed;
    return readiness_[name] = {state, error.what()};
  }
  return readiness_[name] = {};
}

GroupLaunch LaunchRunner::launch(const PlannedGroup& group, const LaunchPlace& place) {
  const int first = store_ == nullptr ? 0 : store_->next_attempt(run_id_, group.id, place.block);
  const auto known = readiness_.find(group.environment);
  if (known != readiness_.end() && known->second.state != Readiness::State::ready)
    return not_started(group, place, first, known->second.reason);
  GroupLaunch last;
  const int end = first + terms_.protocol.retries;
  for (int number = first; number <= end; ++number) {
    last = attempt(group, place, number, terms_.protocol);
    if (last.ok() || last.finished.interrupted_by != 0) break;
    // A failed launch may have spoiled its surroundings.
    drop_environment(group);
    if (number < end)
      console_.warning(fmt::format("{}: attempt {} failed, trying again: {}", place.label,
                                   number + 1, last.finished.end.reason));
  }
  return last;
}

GroupLaunch LaunchRunner::attempt(const PlannedGroup& group, const LaunchPlace& place, int number,
                                  const RunProtocol& protocol) {
  const auto& profile = profile_of(group);
  Environment* environment = nullptr;
  PreparedLaunch launch;
  try {
    hold_nodes();
    environment = &pool_.get(profile, group.ranks);
    if (interrupt_signal() != 0) return {interrupted_before(), 0};
    launch = prepare_launch(group, profile, *environment, site_, protocol,
                            launch_seed(terms_.seed, group.id, place.block, number),
                            replayed_ ? &*replayed_ : nullptr, &cadences_);
  } catch (const Error& error) {
    // One group that cannot be started is no reason to leave the others unmeasured.
    if (error.kind() == ErrorKind::bug) throw;
    // Ctrl-C ends a start too: that is no fault of the environment's.
    if (interrupt_signal() != 0) return {interrupted_before(), 0};
    return not_started(
        group, place, number,
        (environment == nullptr ? "the environment did not start: " : "cannot be started: ") +
            std::string(error.what()));
  }
  launch.start.block = place.block;
  launch.start.attempt = number;
  launch.start.position = place.position;
  const auto others = [&] { return profile.simulated() ? std::set<pid_t>() : runs_beside(); };
  auto beside = others();
  say_who_is_beside(beside);
  launch.noise_before = quiet_window(protocol.noise, site_.cores);
  if (interrupt_signal() != 0) {
    remove_launch_folder(launch);
    return {interrupted_before(), 0};
  }
  launch.start.noise_json = launch.noise_before.dump();
  GroupLaunch done;
  if (store_ != nullptr) done.row = store_->begin_launch(run_id_, launch.start);
  LaunchListeners listeners;
  if (console_.verbose())
    listeners.on_stderr = [](const std::string& text) { tell(printable(text)); };
  // One that begins and ends meanwhile is seen by none of the looks before and after.
  listeners.on_look = [&] { beside.merge(others()); };
  done.finished = run_launch(launch, profile, *environment, site_, protocol, listeners);
  if (site_.cluster) note_cluster(done.finished);
  if (site_.cluster && done.ok()) say_places(done.finished.end.regime_json);
  beside.merge(others());
  done.finished.end.noise_flags_json = with_runs_beside(done.finished.end.noise_flags_json, beside);
  const bool stored = store_ != nullptr && store_outcome(launch, group, place, done);
  if (done.ok()) cadences_.note(group, done.finished.records);
  if (store_ == nullptr || (stored && done.ok() && !site_.keep_files)) remove_launch_folder(launch);
  return done;
}

void LaunchRunner::say_places(const std::string& regime_json) {
  const auto regime = json_or_discarded(regime_json);
  if (!regime.is_object()) return;
  const auto text = pair_places_text(regime.value("pairs", nlohmann::json()));
  if (!text.empty() && said_places_.insert(text).second)
    console_.note("pairs of ranks share: " + text);
}

void LaunchRunner::note_cluster(FinishedLaunch& finished) {
  site_.cluster->launched();
  if (finished.end.status == LaunchStatus::ok) return;
  const auto explain = [&](const std::string& why) {
    if (!why.empty())
      finished.end.reason = why + (finished.end.reason.empty() ? "" : "; ") + finished.end.reason;
  };
  // Which end is reported first says little: a rank that is killed takes others and connections
  // along.
  const bool ended_badly = finished.end.exit_code != 0 || finished.end.signal != 0;
  if (ended_badly && finished.interrupted_by == 0) explain(site_.cluster->ended_for_memory());
  // What Slurm does to a job explains what becomes of its ranks, and of this program in it.
  explain(site_.cluster->why_job_ended(finished.interrupted_by != 0));
  site_.cluster->doubt();
}

void LaunchRunner::say_who_is_beside(const std::set<pid_t>& processes) {
  if (processes.empty() || std::exchange(said_beside_, true)) return;
  console_.warning(fmt::format(
      "another run measures on the same cores (process {}): launches at the same time are "
      "flagged; wait for its end, or give each its own cores with taskset",
      *processes.begin()));
}

bool LaunchRunner::store_outcome(const PreparedLaunch& launch, const PlannedGroup& group,
                                 const LaunchPlace& place, const GroupLaunch& done) {
  try {
    store_->finish_launch(done.row, done.finished.end, done.finished.records);
  } catch (const Error& error) {
    keep_launch_folder(launch.folder);
    throw Error(error.kind(), fmt::format("{}\n    the launch's records are kept in {}",
                                          error.what(), launch.folder));
  }
  try {
    store_decisions(launch, group, done.finished.end, site_.db, run_id_, done.row);
  } catch (const Error& error) {
    // The launch itself is stored.
    keep_launch_folder(launch.folder);
    console_.warning(
        fmt::format("{}: what its tuner chose is not stored: {}; the file is kept in {}",
                    place.label, error.what(), launch.folder));
    return false;
  }
  return true;
}

GroupLaunch LaunchRunner::not_started(const PlannedGroup& group, const LaunchPlace& place,
                                      int number, const std::string& reason) {
  LaunchStart start;
  start.uuid = random_uuid();
  start.group_id = group.id;
  start.block = place.block;
  start.attempt = number;
  start.position = place.position;
  start.run_json = start.environment_json = start.container_json = start.noise_json = "{}";
  GroupLaunch done;
  done.finished.interrupted_by = interrupt_signal();
  done.finished.end.status =
      done.finished.interrupted_by != 0 ? LaunchStatus::interrupted : LaunchStatus::failed;
  done.finished.end.reason = reason;
  done.finished.end.exit_code = -1;
  done.finished.end.noise_json = "{}";
  if (store_ != nullptr) {
    done.row = store_->begin_launch(run_id_, start);
    store_->finish_launch(done.row, done.finished.end, {});
  }
  return done;
}

void LaunchRunner::say_unused_places() {
  const auto& places = site_.machine.places;
  const auto nodes = site_.cluster->nodes();
  const bool used = std::any_of(nodes.begin(), nodes.end(),
                                [&](const auto& node) { return places.contains(node.name); });
  if (places.empty() || used || std::exchange(said_unused_places_, true)) return;
  console_.warning(fmt::format(
      "the switches, racks and zones of [machine] name none of these nodes ({}, say, is "
      "declared, {} is here): nodes have the names that they are started by, written out",
      places.begin()->first, nodes.front().name));
}

void LaunchRunner::hold_nodes() {
  if (!site_.cluster) return;
  site_.cluster->hold(run_id_, {site_.worker_folder, site_.run_folder}, {}, preparation_progress());
  say_unused_places();
  // Environments name the job whose steps their ranks are. A hold that failed has left them as they
  // were, and the session without any job.
  if (std::exchange(job_of_pool_, site_.cluster->job()) != site_.cluster->job())
    stop_environments();
}

void LaunchRunner::stop_environments() {
  for (const auto& problem : pool_.stop_all()) note_left_over(problem);
}

void LaunchRunner::drop_environment(const PlannedGroup& group) {
  note_left_over(pool_.drop(profile_of(group), group.ranks));
}

void LaunchRunner::note_left_over(const std::string& problem) {
  if (problem.empty()) return;
  console_.warning(problem);
  if (store_ != nullptr) store_->add_event(run_id_, std::nullopt, "left-over", problem);
}

}  // namespace dynamiccl
