#pragma once

#include "core/statistics/fast_random.hpp"
#include "tuner/agents/belief_memory.hpp"

namespace dynamiccl {

/// Contextual bandit: Thompson sampling on a linear-in-features belief that is shared by all sizes,
/// group sizes, collectives and regimes, warm-started by the tasks' priors. A draw that names an
/// arm with nothing left to learn is drawn again (top-two sampling, Russo 2016): the aim is the
/// best arm, not the reward on the way. Stops a task when no arm's expected gain reaches
/// AgentOptions::stop_gain.
class Bandit final : public Agent {
 public:
  Bandit(const AgentOptions& options, const BeliefOptions& belief);
  [[nodiscard]] std::string_view name() const override { return "bandit"; }
  Choice act(const Task& task) override;
  [[nodiscard]] bool plans() const override { return true; }
  /// Thompson sampling says which settings of every task may be the best; of them, and of the
  /// defaults, those are measured that bring most to all tasks together.
  std::vector<PlannedChoice> plan(const std::vector<const Task*>& tasks, std::size_t most) override;
  void learn(const Task& task, std::size_t arm, const Trial& trial) override {
    memory_.learn(task, arm, trial);
  }
  [[nodiscard]] bool finished(const Task& task) const override { return memory_.finished(task); }
  [[nodiscard]] std::size_t recommend(const Task& task) const override {
    return memory_.recommend(task);
  }
  void reopen(const RegimeKey& key) override { memory_.reopen(key); }

 private:
  BeliefMemory memory_;
  FastRandom random_;
};

}  // namespace dynamiccl
