#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tuner/online/call_driver.hpp"

// Which settings are worth a look, what a job's steps decide, and what is done when its
// surroundings change.
namespace dynamiccl {
namespace {

/// Calls that have changed are a reason to search anew when the steps have changed so much.
constexpr double kChangedPace = 1.15;
/// Samples of what is kept before a search that a change began tries anything.
constexpr std::size_t kNextSamples = 2;
/// A surrounding is as it was before when calls take as long again, to within this in ln(us).
constexpr double kAsBefore = 0.3;
/// The library's own settings, whose steps took so many times as long, are not asked again.
constexpr double kFarWorse = 1.5;
constexpr std::size_t kMostSettlements = 4;

/// Standard error of a median, a part of it.
double median_error(const StepReading& step) {
  return 1.2533 * step.spread /
         std::sqrt(static_cast<double>(std::max<std::size_t>(1, step.steps)));
}

bool surely_longer(const StepReading& step, const StepReading& than) {
  constexpr double kNoise = 0.03;
  const double noise = std::max(kNoise, 2 * std::hypot(median_error(step), median_error(than)));
  return step.step.count() > (1 + noise) * than.step.count();
}

}  // namespace

bool CallDriver::waited_for(std::size_t steps, std::int64_t since_ns) const {
  constexpr double kSlack = 2;
  constexpr double kMostNs = 300e9;
  const std::int64_t waited_ns = now_ns() - since_ns;
  if (waited_ns <= kPatienceNs) return false;
  double step_us = base_step_ ? base_step_->step.count() : 0;
  if (const auto latest = options_.latest_step ? options_.latest_step() : std::nullopt)
    step_us = std::max(step_us, latest->count());
  return static_cast<double>(waited_ns) >
         std::min(kMostNs, kSlack * 1e3 * static_cast<double>(steps) * step_us);
}

bool CallDriver::enough_steps(std::optional<StepReading>& step) const {
  constexpr std::size_t kSteps = 5;
  step = reading();
  return (step && step->steps >= kSteps) || waited_for(kSteps, check_ns_);
}

void CallDriver::go_on(Check next) {
  check_ = next;
  check_ns_ = now_ns();
}

bool CallDriver::is_default(const CallTable& table) const {
  return std::all_of(tasks_.begin(), tasks_.end(), [&](const auto& task) {
    return table.cells[task.first.function][task.first.bin].leaves_all();
  });
}

/// What was chosen stands, unless the search began with other settings than the library's own,
/// which were then never asked for their steps: they are now.
void CallDriver::stand(const StepReading& chosen) {
  chosen_step_ = chosen;
  bool chooses = false;
  for (const auto& [cell, learning] : tasks_) chooses = chooses || learning.machine.kept != 0;
  const bool ask_default = chooses && !is_default(base_) && own_pace_ < kFarWorse;
  for (auto& [cell, learning] : tasks_)
    learning.proposed = {ask_default ? 0 : learning.machine.kept, 1, false};
  go_on(ask_default ? Check::own : Check::again);
  propose_wanted();
}

/// The table that is in force just now is surely faster by the step.
void CallDriver::take_back(const StepReading& old, const char* to) {
  ++rolled_back_;
  record_check(GuardVerdict::slower_than_default, to, old);
  if (options_.on_event)
    options_.on_event(
        fmt::format("steps took {:.4g} ms under what was learnt, {:.4g} ms under {}: "
                    "that is back",
                    chosen_step_->step.count() / 1e3, old.step.count() / 1e3, to));
  for (auto& [cell, learning] : tasks_) {
    if (learning.machine.kept == learning.proposed.arm) continue;
    tell(learning, {TaskEvent::close, learning.proposed.arm});
    learning.guard = GuardVerdict::slower_than_default;
    learning.machine.reference.clear();
  }
}

bool CallDriver::is_above_floor(const Learning& learning, Micros time) const {
  return learning.machine.kept != 0 && learning.floor &&
         judge_trial(true, time, Micros{}, learning.floor) == GuardVerdict::above_gloo_floor;
}

bool CallDriver::hold_to_floor(Learning& learning, Micros time) {
  std::size_t arm = 0;
  if (learning.machine.kept == 0 && learning.left) {
    arm = *std::exchange(learning.left, std::nullopt);
    // Where the library's own takes longer still, giving way to it helps nobody.
    if (learning.known.at(arm) >= learning.level) return false;
  } else {
    const bool own_is_slower = learning.default_us > 0 && learning.default_us >= time.count();
    if (learning.below_floor || own_is_slower || !is_above_floor(learning, time)) return false;
    ++above_floor_;
    learning.below_floor = true;
    learning.left = learning.machine.kept;
    learning.known.erase(0);
    if (options_.on_event)
      options_.on_event(fmt::format("{} takes {} where Gloo took {}: NCCL's own settings instead",
                                    learning.task.key.task.text(), format_micros(time),
                                    format_micros(*learning.floor)));
  }
  revert(learning, arm);
  return true;
}

/// Also of what was found long ago: its calls may have become longer since.
void CallDriver::watch_floor(Learning& learning) {
  const bool busy = check_ != Check::none && check_ != Check::done;
  if (learning.closed || busy || learning.loop.choice().arm != learning.machine.kept ||
      learning.machine.reference.size() < kSamplesAgain)
    return;
  const double log_us = learning.machine.reference.newest(kSamplesAgain);
  const Micros time(std::exp(log_us));
  if (!is_above_floor(learning, time) || learning.below_floor) return;
  if (learning.default_us >= time.count()) return;
  learn(learning, log_us, static_cast<std::int64_t>(learning.machine.reference.calls()));
  if (hold_to_floor(learning, time)) leave_check();
}

bool CallDriver::check_step() {
  constexpr const char* kOld = "the settings that the search began with";
  constexpr const char* kOwn = "NCCL's own settings";
  std::optional<StepReading> step;
  switch (check_) {
    case Check::none:
      go_on(options_.steps && !(table_ == base_ && is_default(base_)) ? Check::chosen
                                                                      : Check::done);
      break;
    case Check::chosen:
      if (!enough_steps(chosen_step_)) break;
      if (!chosen_step_) {
        go_on(Check::done);
      } else if (table_ == base_ || (base_step_ && !surely_longer(*chosen_step_, *base_step_))) {
        if (!(table_ == base_)) record_check(GuardVerdict::pass, kOld, *base_step_);
        stand(*chosen_step_);
      } else {
        // Nobody saw steps under the old table before the search, or the machine may have become
        // slower meanwhile: it is asked again.
        for (auto& [cell, learning] : tasks_)
          learning.proposed = {arm_of(learning, base_.cells[cell.function][cell.bin]), 1, false};
        go_on(Check::old);
        propose_wanted();
      }
      break;
    case Check::old:
    case Check::own:
      if (!enough_steps(step)) break;
      if (step && surely_longer(*chosen_step_, *step)) {
        take_back(*step, check_ == Check::old ? kOld : kOwn);
        chosen_step_ = step;
      } else if (step) {
        record_check(GuardVerdict::pass, check_ == Check::old ? kOld : kOwn, *step);
      }
      if (check_ == Check::old) {
        stand(*chosen_step_);
        break;
      }
      for (auto& [cell, learning] : tasks_) learning.proposed = {learning.machine.kept, 1, false};
      go_on(Check::again);
      propose_wanted();
      break;
    case Check::again:
      go_on(Check::done);
      break;
    case Check::done:
      break;
  }
  return check_ == Check::done;
}

void CallDriver::record_check(GuardVerdict guard, const char* against, const StepReading& other) {
  const bool own = check_ == Check::own || is_default(base_);
  if (own) own_pace_ = other.step.count() / chosen_step_->step.count();
  if (!options_.on_decision) return;
  DecisionRecord record;
  record.author = options_.author;
  // Of the whole job: what a table of all sizes does to its step.
  record.task_key = fmt::format("nccl/job/table/r{}n{}", leader_.region().ranks(),
                                std::max(1U, leader_.region().header().nodes));
  record.regime = options_.regime_id.empty() ? options_.regime : options_.regime_id;
  record.regime_name = options_.regime_name;
  record.step = rounds_;
  record.kind = "final";
  record.epoch = epoch_;
  record.arm = guard == GuardVerdict::pass ? fmt::format("what was learnt, table {}", epoch_)
                                           : std::string(against);
  record.guard = name_of(guard);
  record.calls = static_cast<std::int64_t>(chosen_step_->steps);
  // Of what is in force from now on, against what is not.
  const double chosen_us = chosen_step_->step.count();
  const double other_us = other.step.count();
  record.time_us = guard == GuardVerdict::pass ? chosen_us : other_us;
  record.reference_us = guard == GuardVerdict::pass ? other_us : chosen_us;
  record.applied = {{"against", against}, {"learnt_step_us", chosen_us}, {"step_us", other_us}};
  options_.on_decision(record);
}

void CallDriver::leave_check() {
  switch (std::exchange(check_, Check::none)) {
    case Check::none:
    case Check::chosen:
      break;  // The table that the search began with is still to be compared with the new one.
    case Check::old:
    case Check::own:
      // Another table runs to be asked alone: nothing says yet that it stays.
      for (auto& [cell, learning] : tasks_)
        if (learning.machine.stage == TaskStage::settled)
          learning.proposed = {learning.machine.kept, 1, false};
      break;
    case Check::again:
    case Check::done:
      base_ = table_;
      base_step_.reset();
      break;
  }
}

void CallDriver::hear(std::size_t function, std::size_t bin, std::uint32_t epoch, Micros latency) {
  const auto found = tasks_.find({function, bin});
  if (found == tasks_.end() || epoch != epoch_ || !finished()) return;
  Learning& learning = found->second;
  if (learning.heard_epoch != epoch) {
    learning.heard_epoch = epoch;
    learning.trigger.restart();
  }
  const TriggerState& now = learning.trigger.add(latency);
  learning.task.state.cusum_score = now.cusum_score;
  learning.task.state.reconstruction_error = now.reconstruction_error;
  learning.task.state.congestion = now.congestion;
  learning.task.state.interference = now.interference;
  if (std::exchange(together_epoch_, epoch) != epoch) together_.restart();
  // As if each call took a microsecond at its level: what all have in common is what is left.
  const bool all = now.beyond_level && together_.add(Micros(std::exp(*now.beyond_level))).alarm;
  if (!now.alarm && !all) return;
  const Trigger& changed = now.alarm ? learning.trigger : together_;
  faster_ = !(changed.state().interference > 0);
  suspicion_ = fmt::format("{} than before, after {} calls of {}",
                           (now.alarm ? learning.task.key.task.text() + " takes "
                                      : std::string("calls of all sizes together take ")) +
                               (faster_ ? "less time" : "longer"),
                           changed.calls(), now.alarm ? "it" : "theirs");
  suspected_ns_ = now_ns();
  judge_suspicion();
}

bool CallDriver::steps_have_changed() const {
  // A job without steps, or which has lost its rhythm, is judged by its calls alone.
  if (!options_.recent_step || !options_.steps || !options_.steps(epoch_)) return true;
  if (settled_step_us_ <= 0) return false;
  // One step alone must differ by more than steps do by themselves.
  const auto reading = options_.steps(epoch_);
  if (const auto latest = options_.latest_step ? options_.latest_step() : std::nullopt;
      !faster_ && latest && reading &&
      latest->count() >= (kChangedPace + 2 * reading->spread) * settled_step_us_)
    return true;
  const std::optional<Micros> now = options_.recent_step(epoch_);
  if (!now) return true;
  const double pace = now->count() / settled_step_us_;
  return std::max(pace, 1 / pace) >= kChangedPace;
}

void CallDriver::judge_suspicion() {
  if (suspicion_.empty()) return;
  if (!steps_have_changed()) {
    constexpr double kStepsToShow = 10;
    const double waited_us = static_cast<double>(now_ns() - suspected_ns_) / 1e3;
    if (waited_us > kStepsToShow * options_.steps(epoch_)->step.count()) suspicion_.clear();
    return;
  }
  ++alarms_;
  if (options_.on_event) options_.on_event(suspicion_ + ": settings are searched anew");
  search_anew(faster_);
}

std::optional<std::size_t> CallDriver::unseen_kind(const Learning& learning) const {
  const ActionSpace& space = *learning.task.space;
  for (std::size_t a = 0; a < space.arms().size(); ++a) {
    const Action& arm = space.arms()[a];
    const bool own =
        std::all_of(arm.begin() + static_cast<std::ptrdiff_t>(space.implementation_knobs()),
                    arm.end(), [](auto value) { return value == 0; });
    if (own && !learning.known.contains(a)) return a;
  }
  return std::nullopt;
}

std::optional<std::size_t> CallDriver::unseen(const Learning& learning) const {
  const auto new_one = [&](std::size_t arm) { return !learning.known.contains(arm); };
  const std::size_t recommended = learning.loop.recommend(learning.task);
  if (new_one(recommended)) return recommended;
  const ActionSpace& space = *learning.task.space;
  const Action& best = space.arms()[learning.machine.kept];
  // Every implementation, with the resources that are best so far and with its own.
  for (std::size_t a = 0; a < space.arms().size(); ++a) {
    if (!new_one(a)) continue;
    bool own = true;
    bool same = true;
    for (std::size_t k = space.implementation_knobs(); k < best.size(); ++k) {
      own = own && space.arms()[a][k] == 0;
      same = same && space.arms()[a][k] == best[k];
    }
    if (own || same) return a;
  }
  for (std::size_t a = 0; a < space.arms().size(); ++a) {
    int steps = 0;
    for (std::size_t k = 0; k < best.size(); ++k)
      steps += std::abs(static_cast<int>(best[k]) - static_cast<int>(space.arms()[a][k]));
    if (steps == 1 && new_one(a)) return a;
  }
  return std::nullopt;
}

void CallDriver::search_again(Learning& learning) {
  if (learning.closed) return;
  // The first search goes on with what it knows.
  if (!learning.searched) return revert(learning, learning.machine.kept);
  // How its settings stood before says something of how they stand now, as another place's do.
  if (learning.before) agent().reopen(*learning.before);
  learning.before = learning.task.key;
  learning.task.key.regime = surroundings();
  learning.loop.reopen(learning.task);
  learning.known.clear();
  learning.lost_us = 0;
  learning.default_us = 0;
  learning.below_floor = false;
  learning.left.reset();
  learning.heard_ns = now_ns();
  learning.machine.rules.references = kNextSamples;
  tell(learning, {TaskEvent::search});
}

void CallDriver::search_anew(bool faster) {
  if (settled_) settlements_.push_back(*std::exchange(settled_, std::nullopt));
  if (settlements_.size() > kMostSettlements) settlements_.erase(settlements_.begin());
  suspicion_.clear();
  settled_step_us_ = 0;
  rounds_ = 0;
  search_ns_ = now_ns();
  check_ = Check::none;
  base_step_.reset();
  // Whoever has gone leaves what was there before him.
  restoring_ = faster && settlements_.size() > 1;
  if (restoring_) return restore(settlements_[settlements_.size() - 2]);
  base_ = table_;
  search_all_again();
}

void CallDriver::search_all_again() {
  ++changes_;
  for (auto& [cell, learning] : tasks_) search_again(learning);
}

std::string CallDriver::surroundings() const {
  return changes_ == 0 ? options_.regime : fmt::format("{}, {}", options_.regime, changes_);
}

void CallDriver::restore(const Settlement& settlement) {
  for (auto& [cell, learning] : tasks_) {
    if (learning.closed) continue;
    revert(learning, arm_of(learning, settlement.table.cells[cell.function][cell.bin]));
  }
}

void CallDriver::see_restored() {
  const bool waits = std::any_of(tasks_.begin(), tasks_.end(), [this](const auto& task) {
    const Learning& learning = task.second;
    return !learning.closed && learning.machine.stage == TaskStage::reference &&
           !waited_for(kSilentSteps, learning.heard_ns);
  });
  if (waits) return;
  restoring_ = false;
  const Settlement before = settlements_[settlements_.size() - 2];
  base_ = table_;
  if (!is_as_before(before)) return search_all_again();
  settlements_.resize(settlements_.size() - 2);
  check_ = Check::done;
  for (auto& [cell, learning] : tasks_) {
    // A size that has come only now is searched as any other.
    if (!learning.searched) {
      check_ = Check::none;
      continue;
    }
    const auto then = before.level.find(cell);
    if (learning.machine.reference.size() > 0) {
      learning.level = learning.machine.reference.level();
      learning.last_us = std::exp(learning.level);
    } else if (!learning.closed) {
      // It was not called meanwhile: what it took then stands; 0: not known.
      learning.last_us = then == before.level.end() ? 0 : std::exp(then->second);
    }
    settle(learning);
  }
}

bool CallDriver::is_as_before(const Settlement& settlement) const {
  double differs = 0;
  double shares = 0;
  for (const auto& [cell, learning] : tasks_) {
    const auto then = settlement.level.find(cell);
    if (then == settlement.level.end() || learning.machine.reference.size() == 0) continue;
    differs += learning.share * std::abs(learning.machine.reference.level() - then->second);
    shares += learning.share;
  }
  return shares > 0 && differs <= kAsBefore * shares;
}

}  // namespace dynamiccl
