#include "tuner/job/step_learner.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/statistics/descriptive.hpp"
#include "tuner/state/last_choice.hpp"

namespace dynamiccl {

StepLearner::StepLearner(std::vector<StepTask> tasks, StepLearnerOptions options)
    : options_(std::move(options)), tasks_(std::move(tasks)), progress_(tasks_.size()) {
  options_.agent_options.max_evaluations = options_.evaluations;
  agent_ = make_agent(options_.agent, options_.agent_options);
  arms_.assign(tasks_.size(), 0);
  rule_out_unusable();
}

void StepLearner::rule_out_unusable() {
  for (const StepTask& one : tasks_)
    for (std::size_t a = 1; a < one.usable.size(); ++a)
      if (!one.usable[a]) agent_->learn(one.task, a, {.ok = false, .time = Micros(0)});
}

double StepLearner::median_of_trial(const std::function<double(const StepSeen&)>& part) const {
  std::vector<double> values;
  for (std::size_t i = static_cast<std::size_t>(options_.trial_skips); i < trial_.size(); ++i)
    values.push_back(part(trial_[i]));
  return median(values);
}

void StepLearner::add(const StepSeen& seen) {
  ++steps_;
  guard_loss(seen);
  if (!seen.arms.empty() && seen.arms != arms_) return;
  if (frozen()) return watch(seen);
  trial_.push_back(seen);
  // Steps that are watched for something else tell none: they have taken what the last ones took.
  if (seen.sm_share) sm_share_ = seen.sm_share;
  trial_.back().sm_share = sm_share_;
  if (trial_.size() < static_cast<std::size_t>(options_.trial_steps)) return;
  end_trial();
  trial_.clear();
}

void StepLearner::guard_loss(const StepSeen& seen) {
  if (!seen.loss) return;
  const bool tried = std::any_of(arms_.begin(), arms_.end(), [](auto arm) { return arm != 0; });
  if (!std::isfinite(*seen.loss) && tried && last_loss_ && std::isfinite(*last_loss_))
    diverged_ = true;
  loss_delta_ = plateau_.add(*seen.loss);
  last_loss_ = seen.loss;
}

void StepLearner::end_trial() {
  ++trials_;
  const double step_us = median_of_trial([](const StepSeen& seen) { return seen.step_us; });
  if (diverged_) return freeze();
  if (stage_ == Stage::looking) {
    for (std::size_t t = 0; t < tasks_.size(); ++t) progress_[t].share += trial_.back().call_us[t];
    // The first step warms what no later one finds cold.
    if (trials_ > options_.reference_steps / 2) rank_tasks();
    return;
  }
  const std::size_t task = order_[turn_];
  Progress& now = progress_[task];
  const double call_us =
      median_of_trial([task](const StepSeen& seen) { return seen.call_us[task]; });
  now.failed = std::any_of(trial_.begin(), trial_.end(), [task](const StepSeen& seen) {
    return !seen.refused.empty() && seen.refused[task];
  });
  const Brought brought{step_us, call_us, median_of_trial([](const StepSeen& seen) {
                          return seen.sm_share.value_or(0);
                        })};
  if (stage_ == Stage::confirming) {
    answers_.emplace_back();
    answers_.back().trial = {.ok = !now.failed, .time = Micros(step_us)};
    record(task, choice_.arm == 0 ? "reference" : "exploit", brought,
           now.failed ? GuardVerdict::failed : GuardVerdict::pass);
    return confirm_on();
  }
  now.tried.insert(choice_.arm);
  if (stage_ == Stage::reference) {
    now.reference_steps_us.push_back(step_us);
    now.reference_calls_us.push_back(call_us);
  }
  const auto terms = judge(task, brought);
  // The terms that are the setting's own doing: what trying costs is no fault of what is tried.
  const double own =
      terms ? (terms->base + terms->call_shaping + terms->sm) / (1 + options_.weights.call_shaping)
            : -1;
  const double judged_us = -own * median(now.reference_steps_us);
  Trial learnt{.ok = !now.failed, .time = Micros(judged_us)};
  if (terms) learnt.reward = terms->total();
  agent_->learn(tasks_[task].task, choice_.arm, learnt);
  // The library's own choice is what others are held against; it is not slower than itself.
  const Micros reference(choice_.arm == 0 ? 0 : median(now.reference_steps_us));
  record(task,
         stage_ == Stage::reference ? "reference"
         : choice_.exploratory      ? "explore"
                                    : "exploit",
         brought,
         judge_trial(!now.failed, Micros(step_us), reference, std::nullopt, options_.limits));
  now.last_arm = choice_.arm;
  if (stage_ == Stage::reference) {
    if (now.reference_steps_us.size() < static_cast<std::size_t>(options_.reference_steps)) return;
    stage_ = Stage::searching;
  }
  search_on();
}

void StepLearner::rank_tasks() {
  double all = 0;
  for (const Progress& one : progress_) all += one.share;
  order_.clear();
  for (std::size_t t = 0; t < tasks_.size(); ++t) {
    progress_[t].share = all > 0 ? progress_[t].share / all : 0;
    if (tasks_[t].task.space->arms().size() > 1 && progress_[t].share >= options_.least_share)
      order_.push_back(t);
  }
  std::sort(order_.begin(), order_.end(),
            [&](std::size_t a, std::size_t b) { return progress_[a].share > progress_[b].share; });
  turn_ = 0;
  if (order_.empty()) return freeze();
  begin_reference();
}

void StepLearner::begin_reference() {
  stage_ = Stage::reference;
  progress_[order_[turn_]].reference_steps_us.clear();
  progress_[order_[turn_]].reference_calls_us.clear();
  progress_[order_[turn_]].tried.clear();
  try_arm(0, false, 1);
}

void StepLearner::try_arm(std::size_t arm, bool exploratory, double propensity) {
  choice_ = {arm, propensity, exploratory};
  std::uint32_t& in_force = arms_[order_[turn_]];
  if (in_force != arm) ++epoch_;
  in_force = static_cast<std::uint32_t>(arm);
}

void StepLearner::search_on() {
  const StepTask& one = tasks_[order_[turn_]];
  if (!agent_->finished(one.task)) {
    const Choice next = agent_->act(one.task);
    return try_arm(next.arm, next.exploratory, next.propensity);
  }
  Progress& now = progress_[order_[turn_]];
  now.candidate = agent_->recommend(one.task);
  now.confirmation.reset();
  now.kept = 0;
  if (now.candidate == 0) return close_task();
  stage_ = Stage::confirming;
  now.confirmation.emplace(std::vector<Ask>{{0, now.candidate}}, options_.confirmation);
  asks_.clear();
  answers_.clear();
  confirm_on();
}

void StepLearner::confirm_on() {
  Progress& now = progress_[order_[turn_]];
  if (!asks_.empty() && answers_.size() == asks_.size()) {
    now.confirmation->add(asks_, answers_);
    // Who is first has an even chance of a drift's help.
    const bool turned = asks_.front().arm != 0;
    asks_ = now.confirmation->round();
    if (!turned) std::reverse(asks_.begin(), asks_.end());
    answers_.clear();
  } else if (asks_.empty()) {
    asks_ = now.confirmation->round();
  }
  if (asks_.empty()) {
    const auto& rounds = now.confirmation->times().at({0, now.candidate});
    now.kept = is_confirmed(rounds, options_.confirmation) ? now.candidate : 0;
    return close_task();
  }
  try_arm(asks_[answers_.size()].arm, false, 1);
}

/// What is said of the task's calls, by the measure of all searches.
CellAnswer StepLearner::answer_for(std::size_t task) const {
  const Progress& now = progress_[task];
  const auto& usable = tasks_[task].usable;
  const auto barred = static_cast<std::size_t>(std::count(usable.begin(), usable.end(), false));
  CellEvidence evidence;
  evidence.arms = tasks_[task].task.space->arms().size() - barred;
  evidence.tried = now.tried.size();
  evidence.ratio = gain(task);
  if (now.confirmation && !evidence.ratio) evidence.guard = GuardVerdict::failed;
  return answer_of(evidence, options_.confirmation);
}

void StepLearner::close_task() {
  const std::size_t task = order_[turn_];
  Progress& now = progress_[task];
  const CellAnswer answer = answer_for(task);
  try_arm(now.kept, false, 1);
  double step_us = 0;
  if (now.confirmation && now.kept != 0)
    step_us = median(worked(now.confirmation->times().at({0, now.candidate})).chosen_us);
  nlohmann::json flags = nlohmann::json::array();
  if (!answer.flag.empty()) flags.push_back(answer.flag);
  record(task, "final", {step_us, 0, 0}, answer.guard,
         {{"tried", now.tried.size()}, {"flags", std::move(flags)}});
  next_task();
}

void StepLearner::next_task() {
  if (++turn_ < order_.size()) return begin_reference();
  freeze();
}

void StepLearner::freeze() {
  stage_ = Stage::frozen;
  if (frozen_after_ == 0) frozen_after_ = steps_;
  for (std::size_t t = 0; t < tasks_.size(); ++t) {
    if (diverged_) progress_[t].kept = 0;
    arms_[t] = static_cast<std::uint32_t>(progress_[t].kept);
    progress_[t].trigger.restart();
  }
}

void StepLearner::watch(const StepSeen& seen) {
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

void StepLearner::reopen() {
  ++alarms_;
  for (const std::size_t task : order_) {
    agent_->reopen(tasks_[task].task.key);
    progress_[task].last_arm.reset();
  }
  rule_out_unusable();
  turn_ = 0;
  begin_reference();
}

std::optional<Ratio> StepLearner::gain(std::size_t task) const {
  const Progress& one = progress_[task];
  if (!one.confirmation) return std::nullopt;
  return ratio_of(one.confirmation->times().at({0, one.candidate}),
                  options_.confirmation.confidence);
}

std::optional<RewardTerms> StepLearner::judge(std::size_t task, const Brought& brought) const {
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
  outcome.tier_max = tasks_[task].task.state.tier_max;
  outcome.loss_delta = loss_delta_;
  outcome.plateau = plateau_.plateau();
  return reward(outcome, options_.weights);
}

void StepLearner::record(std::size_t task, const char* kind, const Brought& brought,
                         GuardVerdict guard, const nlohmann::json& said) {
  const double step_us = brought.step_us;
  const double call_us = brought.call_us;
  Progress& now = progress_[task];
  State& state = tasks_[task].task.state;
  if (options_.on_decision) {
    const ActionSpace& space = *tasks_[task].task.space;
    DecisionRecord record;
    record.author = {std::string(agent_->name()), "", options_.agent_options.seed};
    record.task_key = tasks_[task].task.key.task.text();
    record.step = now.decisions;
    record.kind = kind;
    record.epoch = epoch_;
    record.arm = space.text(space.arms()[choice_.arm]);
    record.propensity = std::clamp(choice_.propensity, 1e-12, 1.0);
    record.state = state_json(state);
    record.candidates = candidates_json(space);
    record.candidates.update(said);
    record.guard = name_of(diverged_ ? GuardVerdict::failed : guard);
    record.asked = setting_json(space.setting(space.arms()[choice_.arm]));
    record.calls = tasks_[task].calls * options_.trial_steps;
    if (step_us > 0) record.time_us = step_us;
    if (!now.reference_steps_us.empty()) record.reference_us = median(now.reference_steps_us);
    if (step_us > 0 && call_us > 0)
      if (const auto terms = judge(task, brought)) {
        record.reward = terms->total();
        record.reward_terms = reward_json(*terms);
      }
    options_.on_decision(record);
  }
  const ActionSpace& choices = *tasks_[task].task.space;
  state.last_choice = last_choice_of(choices, choices.arms()[choice_.arm]);
  ++now.decisions;
  const double reference_call_us = median(now.reference_calls_us);
  if (call_us > 0 && reference_call_us > 0) {
    auto& history = state.log_latency_history;
    std::rotate(history.begin(), history.end() - 1, history.end());
    history[0] = std::log(call_us / reference_call_us);
    state.history_known = std::min(state.history_known + 1, kHistoryLength);
  }
}

}  // namespace dynamiccl
