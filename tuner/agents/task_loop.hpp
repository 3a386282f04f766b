#pragma once

#include <optional>

#include "tuner/agents/agent.hpp"
#include "tuner/reward/reward.hpp"

namespace dynamiccl {

/// A choice that was measured, as decision logs keep it.
struct LoopStep {
  int step = 0;  ///< of the task, from 0
  Choice choice;
  bool switched = false;  ///< another arm than in the step before
  State state;            ///< that the choice was made in
};

/// The loop of an agent over one task: propose, measure, learn, until the agent is finished or the
/// measurements are spent. It is cut where somebody measures, because that differs: a search asks
/// for launches of many tasks at once, a job measures while it goes on, a simulator steps jobs side
/// by side. The agent may serve many tasks, each with a loop of its own. Not thread-safe.
class TaskLoop {
 public:
  /// @param most measurements; 0 = the agent decides
  explicit TaskLoop(Agent& agent, int most = 0) : agent_(&agent), most_(most) {}

  /// Nothing more to measure; propose() keeps answering what to use.
  [[nodiscard]] bool finished(const Task& task) const;
  /// What to measure next: the agent's choice, or what it recommends when all is measured. It is
  /// not in force yet.
  Choice propose(const Task& task);
  /// Puts a choice in force: a proposal, perhaps after all ranks have agreed on it, a reference,
  /// what a job was started with, or what a plan over many tasks chose.
  void put(const Choice& choice) { choice_ = choice; }
  [[nodiscard]] const Choice& choice() const { return choice_; }
  /// Both at once.
  const Choice& next(const Task& task) {
    put(propose(task));
    return choice_;
  }

  /// The choice in force as a step, before its result is known.
  [[nodiscard]] LoopStep in_force(const Task& task) const {
    return {steps_, choice_, last_arm_ && *last_arm_ != choice_.arm, task.state};
  }
  /// Takes what the choice in force brought.
  /// @param learnt what the agent hears of it; nullopt = nothing any more
  /// @param relative ln(time / time of the default), which becomes part of the task's state;
  /// nullopt = not known
  LoopStep observe(Task& task, const std::optional<Trial>& learnt, std::optional<double> relative);
  /// The same of a task whose state nothing follows.
  void observe(const Task& task, const Trial& trial);

  /// The surroundings have changed: the agent forgets what it knew of the task.
  void reopen(const Task& task);

  [[nodiscard]] std::size_t recommend(const Task& task) const { return agent_->recommend(task); }
  [[nodiscard]] int steps() const { return steps_; }  ///< measurements, over reopen() too
  /// Of the newest measurement; nullopt before the first and after reopen().
  [[nodiscard]] std::optional<std::size_t> last_arm() const { return last_arm_; }

 private:
  void count();

  Agent* agent_;
  int most_;
  Choice choice_{0, 1, false};
  std::optional<std::size_t> last_arm_;
  int steps_ = 0;
};

/// Adds to a task's own times: ln(time / time of its default), newest first.
void push_history(State& state, double relative);

/// What the step brought, as the reward is made from it: a call that took `call`, under the default
/// `reference`. The call stands for the job's step too.
StepOutcome outcome_of(const LoopStep& step, Micros call, Micros reference);

}  // namespace dynamiccl
