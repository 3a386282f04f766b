#include "tuner/job/step_trials.hpp"

#include <algorithm>
#include <cmath>

#include "core/statistics/descriptive.hpp"
#include "tuner/guards/guards.hpp"
#include "tuner/search/cell_answer.hpp"
#include "tuner/state/last_choice.hpp"

namespace dynamiccl {
namespace {

constexpr int kEvaluations = 40;              ///< of a task at most, its reference included
constexpr std::size_t kReferenceTrials = 10;  ///< under the default before a task is searched
/// Tasks with less of the communication than this are left alone.
constexpr double kLeastShare = 0.05;
const TaskRules kRules{.references = kReferenceTrials};

}  // namespace

StepTrials::StepTrials(std::vector<StepTask> tasks, StepTrialsOptions options)
    : options_(std::move(options)),
      tasks_(std::move(tasks)),
      progress_(tasks_.size(), Progress{{kRules}}),
      arms_(tasks_.size(), 0) {
  options_.agent_options.max_evaluations = kEvaluations;
  agent_ = make_agent("bandit", options_.agent_options);
  rule_out_unusable();
}

void StepTrials::rule_out_unusable() {
  for (const StepTask& one : tasks_)
    for (std::size_t a = 1; a < one.usable.size(); ++a)
      if (!one.usable[a]) agent_->learn(one.task, a, {.ok = false, .time = Micros(0)});
}

double StepTrials::median_of_trial(const std::function<double(const StepSeen&)>& part) const {
  std::vector<double> values;
  for (std::size_t i = static_cast<std::size_t>(options_.trial_skips); i < trial_.size(); ++i)
    values.push_back(part(trial_[i]));
  return median(values);
}

void StepTrials::add(const StepSeen& seen) {
  ++steps_;
  guard_loss(seen);
  if (!seen.arms.empty() && seen.arms != arms_) return;
  if (frozen_) return watch(seen);
  trial_.push_back(seen);
  // Steps that are watched for something else tell none: they have taken what the last ones took.
  if (seen.sm_share) sm_share_ = seen.sm_share;
  trial_.back().sm_share = sm_share_;
  if (trial_.size() < static_cast<std::size_t>(options_.trial_steps)) return;
  end_trial();
  trial_.clear();
}

void StepTrials::guard_loss(const StepSeen& seen) {
  if (!seen.loss) return;
  const bool tried = std::any_of(arms_.begin(), arms_.end(), [](auto arm) { return arm != 0; });
  if (!std::isfinite(*seen.loss) && tried && last_loss_ && std::isfinite(*last_loss_))
    diverged_ = true;
  last_loss_ = seen.loss;
}

void StepTrials::end_trial() {
  ++trials_;
  if (diverged_) return freeze();
  if (!ranked_) {
    for (std::size_t t = 0; t < tasks_.size(); ++t) progress_[t].share += trial_.back().call_us[t];
    // The first step also warms up what later ones find warm, so that one does not suffice.
    if (trials_ > static_cast<int>(kReferenceTrials) / 2) rank_tasks();
    return;
  }
  const std::size_t task = order_[turn_];
  Progress& now = progress_[task];
  now.failed = std::any_of(trial_.begin(), trial_.end(), [task](const StepSeen& seen) {
    return !seen.refused.empty() && seen.refused[task];
  });
  const Brought brought{
      median_of_trial([](const StepSeen& seen) { return seen.step_us; }),
      median_of_trial([task](const StepSeen& seen) { return seen.call_us[task]; }),
      median_of_trial([](const StepSeen& seen) { return seen.sm_share.value_or(0); })};
  if (now.machine.stage == TaskStage::confirming)
    record(task, choice_.arm == 0 ? "reference" : "exploit", brought,
           now.failed ? GuardVerdict::failed : GuardVerdict::pass);
  else
    learn(task, brought);
  tell({TaskEvent::measured, choice_.arm, now.failed ? NAN : brought.step_us});
}

void StepTrials::learn(std::size_t task, const Brought& brought) {
  Progress& now = progress_[task];
  const bool reference = now.machine.stage == TaskStage::reference;
  now.tried.insert(choice_.arm);
  if (reference) {
    now.reference_steps_us.push_back(brought.step_us);
    now.reference_calls_us.push_back(brought.call_us);
  }
  const auto terms = judge(task, brought);
  // The terms that are the setting's own doing: what trying costs is no fault of what is tried.
  const double own =
      terms ? (terms->base + terms->call_shaping + terms->sm) / (1 + RewardWeights{}.call_shaping)
            : -1;
  agent_->learn(tasks_[task].task, choice_.arm,
                {.ok = !now.failed, .time = Micros(-own * median(now.reference_steps_us))});
  // The library's own choice is what others are compared with; it is not slower than itself.
  const Micros default_time(choice_.arm == 0 ? 0 : median(now.reference_steps_us));
  record(task,
         reference             ? "reference"
         : choice_.exploratory ? "explore"
                               : "exploit",
         brought, judge_trial(!now.failed, Micros(brought.step_us), default_time, std::nullopt));
  now.last_arm = choice_.arm;
}

void StepTrials::rank_tasks() {
  ranked_ = true;
  double all = 0;
  for (const Progress& one : progress_) all += one.share;
  for (std::size_t t = 0; t < tasks_.size(); ++t) {
    progress_[t].share = all > 0 ? progress_[t].share / all : 0;
    if (const auto admitted = admit(tasks_[t].task.state); admitted != GuardVerdict::pass) {
      record(t, "final", {}, admitted, {{"tried", 0}, {"flags", nlohmann::json::array()}});
      continue;
    }
    if (tasks_[t].task.space->arms().size() > 1 && progress_[t].share >= kLeastShare)
      order_.push_back(t);
  }
  std::sort(order_.begin(), order_.end(),
            [&](std::size_t a, std::size_t b) { return progress_[a].share > progress_[b].share; });
  begin_task();
}

void StepTrials::begin_task() {
  if (turn_ == order_.size()) return freeze();
  Progress& now = progress_[order_[turn_]];
  now.reference_steps_us.clear();
  now.reference_calls_us.clear();
  now.tried.clear();
  tell({TaskEvent::search});
}

void StepTrials::put(const Choice& choice) {
  choice_ = choice;
  std::uint32_t& in_force = arms_[order_[turn_]];
  if (in_force != choice.arm) ++epoch_;
  in_force = static_cast<std::uint32_t>(choice.arm);
}

void StepTrials::tell(TaskEvent event) {
  const Task& task = tasks_[order_[turn_]].task;
  TaskState& machine = progress_[order_[turn_]].machine;
  TaskAction action;
  Choice choice{0, 1, false};
  for (;;) {
    std::tie(machine, action) = next(std::move(machine), event);
    if (action.kind == TaskAction::run || action.kind == TaskAction::settle) break;
    if (action.kind == TaskAction::conclude || agent_->finished(task)) {
      event = {TaskEvent::finished, agent_->recommend(task)};
    } else {
      choice = agent_->act(task);
      event = {TaskEvent::chosen, choice.arm};
    }
  }
  put(event.kind == TaskEvent::chosen ? choice : Choice{action.arm, 1, false});
  if (action.kind == TaskAction::settle) close_task();
}

void StepTrials::close_task() {
  const std::size_t task = order_[turn_];
  const Progress& now = progress_[task];
  const auto& usable = tasks_[task].usable;
  // What is said of the task's calls, by the measure of all searches.
  CellEvidence evidence;
  evidence.arms = tasks_[task].task.space->arms().size() -
                  static_cast<std::size_t>(std::count(usable.begin(), usable.end(), false));
  evidence.tried = now.tried.size();
  evidence.ratio = gain(task);
  if (!now.machine.pairs.empty() && !evidence.ratio) evidence.guard = GuardVerdict::failed;
  const CellAnswer answer = answer_of(evidence, now.machine.rules.pairs);
  double step_us = 0;
  if (now.machine.kept != 0) step_us = median(worked(now.machine.pairs).chosen_us);
  nlohmann::json flags = nlohmann::json::array();
  if (!answer.flag.empty()) flags.push_back(answer.flag);
  record(task, "final", {step_us, 0, 0}, answer.guard,
         {{"tried", now.tried.size()}, {"flags", std::move(flags)}});
  ++turn_;
  begin_task();
}

void StepTrials::freeze() {
  frozen_ = true;
  if (frozen_after_ == 0) frozen_after_ = steps_;
  for (std::size_t t = 0; t < tasks_.size(); ++t) {
    TaskState& machine = progress_[t].machine;
    if (diverged_) machine = next(std::move(machine), {TaskEvent::close, 0}).first;
    arms_[t] = static_cast<std::uint32_t>(machine.kept);
    progress_[t].trigger.restart();
  }
}

void StepTrials::watch(const StepSeen& seen) {
  if (diverged_) return freeze();
  bool alarm = false;
  for (const std::size_t task : order_) {
    const TriggerState& state = progress_[task].trigger.add(Micros(seen.call_us[task]));
    State& known = tasks_[task].task.state;
    known.cusum_score = state.cusum_score;
    known.reconstruction_error = state.reconstruction_error;
    known.congestion = state.congestion;
    known.interference = state.interference;
    alarm = alarm || state.alarm;
  }
  if (alarm) reopen();
}

void StepTrials::reopen() {
  ++alarms_;
  frozen_ = false;
  for (const std::size_t task : order_) {
    agent_->reopen(tasks_[task].task.key);
    progress_[task].last_arm.reset();
  }
  rule_out_unusable();
  turn_ = 0;
  begin_task();
}

std::optional<Ratio> StepTrials::gain(std::size_t task) const {
  const TaskState& machine = progress_[task].machine;
  return ratio_of(machine.pairs, machine.rules.pairs.confidence);
}

std::optional<RewardTerms> StepTrials::judge(std::size_t task, const Brought& brought) const {
  const Progress& now = progress_[task];
  const double reference_us = median(now.reference_steps_us);
  const double reference_call_us = median(now.reference_calls_us);
  if (!(brought.step_us > 0) || !(reference_us > 0) || !(reference_call_us > 0))
    return std::nullopt;
  StepOutcome outcome;
  outcome.step = Micros(brought.step_us);
  outcome.reference_step = Micros(reference_us);
  outcome.call = Micros(brought.call_us);
  outcome.sm_share = brought.sm_share;
  outcome.reference_call = Micros(reference_call_us);
  outcome.switched = now.last_arm && *now.last_arm != choice_.arm;
  outcome.exploratory = choice_.exploratory;
  outcome.fault = now.failed || diverged_;
  outcome.congestion = tasks_[task].task.state.congestion;
  return reward(outcome);
}

void StepTrials::record(std::size_t task, const char* kind, const Brought& brought,
                        GuardVerdict guard, const nlohmann::json& said) {
  Progress& now = progress_[task];
  State& state = tasks_[task].task.state;
  const bool timed = brought.step_us > 0 && brought.call_us > 0;
  if (options_.on_decision) {
    DecisionRecord record = record_of(tasks_[task].task, choice_, state);
    record.author = {std::string(agent_->name()), "", options_.agent_options.seed};
    record.step = now.decisions;
    record.kind = kind;
    record.epoch = epoch_;
    record.candidates.update(said);
    record.guard = name_of(diverged_ ? GuardVerdict::failed : guard);
    record.calls = tasks_[task].calls * options_.trial_steps;
    if (brought.step_us > 0) record.time_us = brought.step_us;
    if (!now.reference_steps_us.empty()) record.reference_us = median(now.reference_steps_us);
    if (const auto terms = timed ? judge(task, brought) : std::nullopt) {
      record.reward = terms->total();
      record.reward_terms = reward_json(*terms);
    }
    options_.on_decision(record);
  }
  const ActionSpace& choices = *tasks_[task].task.space;
  state.last_choice = last_choice_of(choices, choices.arms()[choice_.arm]);
  ++now.decisions;
  const double reference_call_us = median(now.reference_calls_us);
  if (brought.call_us > 0 && reference_call_us > 0)
    push_history(state, std::log(brought.call_us / reference_call_us));
}

}  // namespace dynamiccl
