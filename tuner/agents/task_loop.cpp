#include "tuner/agents/task_loop.hpp"

#include <algorithm>

#include "tuner/state/last_choice.hpp"

namespace dynamiccl {

void push_history(State& state, double relative) {
  auto& history = state.log_latency_history;
  std::rotate(history.begin(), history.end() - 1, history.end());
  history[0] = relative;
  state.history_known = std::min(state.history_known + 1, kHistoryLength);
}

bool TaskLoop::finished(const Task& task) const {
  return (most_ > 0 && steps_ >= most_) || agent_->finished(task);
}

Choice TaskLoop::propose(const Task& task) {
  if (most_ > 0 && steps_ >= most_) return {agent_->recommend(task), 1, false};
  return agent_->act(task);
}

LoopStep TaskLoop::observe(Task& task, const std::optional<Trial>& learnt,
                           std::optional<double> relative) {
  LoopStep step = in_force(task);
  if (learnt) agent_->learn(task, choice_.arm, *learnt);
  if (relative) push_history(task.state, *relative);
  task.state.last_choice = last_choice_of(*task.space, task.space->arms()[choice_.arm]);
  count();
  return step;
}

void TaskLoop::observe(const Task& task, const Trial& trial) {
  agent_->learn(task, choice_.arm, trial);
  count();
}

void TaskLoop::count() {
  last_arm_ = choice_.arm;
  ++steps_;
}

void TaskLoop::reopen(const Task& task) {
  agent_->reopen(task.key);
  last_arm_.reset();
}

StepOutcome outcome_of(const LoopStep& step, Micros call, Micros reference) {
  StepOutcome outcome;
  outcome.step = outcome.call = call;
  outcome.reference_step = outcome.reference_call = reference;
  outcome.switched = step.switched;
  outcome.exploratory = step.choice.exploratory;
  outcome.congestion = step.state.congestion;
  return outcome;
}

}  // namespace dynamiccl
