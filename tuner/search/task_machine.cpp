#include "tuner/search/task_machine.hpp"

#include <algorithm>
#include <cmath>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {
namespace {

/// Standard deviation of ln(us) of a sample while little is known, and bounds of what is believed.
constexpr std::size_t kSamplesOfNoise = 4;
constexpr double kUnknownNoise = 0.15, kLeastNoise = 0.02, kMostNoise = 0.5;
/// A gain in ln(us) that no machine's pace brings by itself.
constexpr double kBeyondPace = 0.35;

double noise_of(const TaskState& s) { return s.noise > 0 ? s.noise : kUnknownNoise; }

TaskAction run(TaskState& s, std::size_t arm) {
  s.running = arm;
  return {TaskAction::run, arm};
}

TaskAction settle(TaskState& s, std::size_t arm) {
  s.stage = TaskStage::settled;
  s.kept = s.running = arm;
  return {TaskAction::settle, arm};
}

TaskAction choose(TaskState& s) {
  s.stage = TaskStage::asking;
  return {is_spent(s) ? TaskAction::conclude : TaskAction::choose, s.running};
}

TaskAction refer(TaskState& s, std::size_t wanted) {
  s.stage = TaskStage::reference;
  s.wanted = wanted;
  return run(s, s.rules.at_once ? s.kept : 0);
}

/// Learns from a sample of what is kept how much such samples vary.
void take_reference(TaskState& s, const TaskEvent& event) {
  if (!s.rules.at_once) return;
  s.reference.add(Micros(event.us), event.calls);
  if (s.reference.size() < kSamplesOfNoise) return;
  const double noise = s.reference.noise();
  s.noise = std::clamp(s.noise > 0 ? 0.8 * s.noise + 0.2 * noise : noise, kLeastNoise, kMostNoise);
}

void promote(TaskState& s, std::size_t arm) {
  s.kept = arm;
  s.reference = s.trial;
}

TaskAction end_trial(TaskState& s, TrialVerdict verdict) {
  if (verdict != TrialVerdict::better) return refer(s, 1);
  if (s.trial.level() - s.reference.level() < -kBeyondPace) {
    promote(s, s.running);
    return refer(s, 1);
  }
  // The machine's pace may have moved: what is in force is asked again.
  s.candidate = s.running;
  s.stage = TaskStage::confirming;
  s.wanted = s.rules.again;
  return run(s, s.kept);
}

TaskAction take_trial(TaskState& s, const TaskEvent& event) {
  if (!s.rules.at_once) return choose(s);
  s.trial.add(Micros(event.us), event.calls);
  const TrialVerdict verdict = judge_calls(s.trial, s.reference, noise_of(s), *s.rules.at_once);
  return verdict == TrialVerdict::open ? run(s, s.running) : end_trial(s, verdict);
}

bool is_faster_still(const TaskState& s) {
  const double samples = static_cast<double>(s.trial.size());
  const double again = static_cast<double>(s.rules.again);
  const double error = noise_of(s) * std::sqrt(1.0 / samples + 1.0 / again);
  return s.trial.level() - s.reference.newest(s.rules.again) + error < 0;
}

TaskAction confirm(TaskState& s) {
  s.stage = TaskStage::confirming;
  // Who is first has an even chance of a drift's help.
  const bool candidate = (s.pairs.size() % 2 == 1) != s.half.has_value();
  return run(s, candidate ? s.candidate : 0);
}

TaskAction take_confirming(TaskState& s, const TaskEvent& event) {
  if (s.rules.at_once) {
    take_reference(s, event);
    if (--s.wanted > 0) return run(s, s.kept);
    if (!is_faster_still(s)) return choose(s);
    promote(s, s.candidate);
    return refer(s, 1);
  }
  if (!s.half) {
    s.half = event.us;
    return confirm(s);
  }
  const bool candidate_last = s.running == s.candidate;
  s.pairs.push_back({candidate_last ? event.us : *s.half, candidate_last ? *s.half : event.us});
  s.half.reset();
  if (is_open(s.pairs, s.rules.pairs)) return confirm(s);
  return settle(s, is_confirmed(s.pairs, s.rules.pairs) ? s.candidate : 0);
}

/// What was still measured under a setting that is on its way out, or in, or says nothing.
TaskAction take_other(TaskState& s, const TaskEvent& event, bool counts) {
  if (counts && event.arm == s.kept) take_reference(s, event);
  if (counts && event.arm == s.candidate && s.stage == TaskStage::confirming)
    s.trial.add(Micros(event.us), event.calls);
  if (s.stage == TaskStage::settled) return settle(s, s.kept);
  return s.stage == TaskStage::asking ? choose(s) : run(s, s.running);
}

TaskAction take(TaskState& s, const TaskEvent& event) {
  const bool counts = event.us > 0 || !s.rules.at_once;
  if (!counts || (event.arm != s.running && s.stage != TaskStage::settled))
    return take_other(s, event, counts);
  switch (s.stage) {
    case TaskStage::reference:
      take_reference(s, event);
      if (s.wanted > 0) --s.wanted;
      return s.wanted > 0 ? run(s, s.running) : choose(s);
    case TaskStage::asking:
      take_reference(s, event);
      return choose(s);
    case TaskStage::trying:
      return take_trial(s, event);
    case TaskStage::confirming:
      return take_confirming(s, event);
    case TaskStage::settled:
      if (event.arm == s.kept) take_reference(s, event);
      break;
  }
  return settle(s, s.kept);
}

TaskAction begin_trial(TaskState& s, std::size_t arm) {
  DYN_ASSERT(s.stage == TaskStage::asking && !is_spent(s), "nothing may be tried now");
  // Another look at what is in force costs nothing.
  if (s.rules.at_once && arm == s.kept) return refer(s, 1);
  ++s.tried;
  s.trial.clear();
  s.stage = TaskStage::trying;
  return run(s, arm);
}

TaskAction finish(TaskState& s, std::size_t arm) {
  DYN_ASSERT(s.stage == TaskStage::asking, "nobody was asked");
  if (s.rules.at_once) return settle(s, s.kept);
  if (arm == 0) return settle(s, 0);
  s.candidate = arm;
  return confirm(s);
}

TaskAction stop(TaskState& s) {
  if (s.rules.at_once && s.stage == TaskStage::trying) return end_trial(s, TrialVerdict::open);
  if (s.rules.at_once || s.stage == TaskStage::settled) return settle(s, s.kept);
  const bool kept = s.stage == TaskStage::confirming &&
                    confirmed_verdict(s.pairs, s.rules.pairs, true) == Verdict::faster;
  return settle(s, kept ? s.candidate : 0);
}

TaskAction search(TaskState& s) {
  s.tried = 0;
  s.pairs.clear();
  s.half.reset();
  s.reference.clear();
  s.trial.clear();
  return refer(s, s.rules.references);
}

TaskAction act(TaskState& s, const TaskEvent& event) {
  switch (event.kind) {
    case TaskEvent::search:
      return search(s);
    case TaskEvent::measured:
      return take(s, event);
    case TaskEvent::chosen:
      return begin_trial(s, event.arm);
    case TaskEvent::finished:
      return finish(s, event.arm);
    case TaskEvent::stop:
      return stop(s);
    case TaskEvent::revert:
      s.kept = event.arm;
      s.reference.clear();
      return refer(s, s.rules.again);
    case TaskEvent::close:
      break;
  }
  return settle(s, event.arm);
}

}  // namespace

std::pair<TaskState, TaskAction> next(TaskState state, const TaskEvent& event) {
  const TaskAction action = act(state, event);
  return {std::move(state), action};
}

}  // namespace dynamiccl
