#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tuner/agents/arm_history.hpp"
#include "tuner/agents/task_loop.hpp"

namespace dynamiccl {

struct LaunchSearchOptions {
  std::string agent = "bandit";
  AgentOptions agent_options{};
  int launches = 11;  ///< of the job, the first of which shows the default
};

/// The search between launches of a job: which launch settings to try next, judged by the job's own
/// step. One task; the first launch, of the default, was made by whoever asks.
class LaunchSearch {
 public:
  /// @throws Error(input) for an unknown agent
  LaunchSearch(Task task, const LaunchSearchOptions& options);

  /// The default's step, and others that are known from before.
  void learn(std::size_t arm, const Trial& trial);
  /// An arm that is known not to work here is not launched.
  void rule_out(std::size_t arm);
  /// What to launch next; nullopt when nothing is worth a launch any more or none is left.
  std::optional<Choice> next();
  /// The arm to use: the best of those that were launched, 0 where none was faster.
  [[nodiscard]] std::size_t best() const;
  [[nodiscard]] int launches() const { return loop_.steps(); }
  [[nodiscard]] const Task& task() const { return task_; }
  /// What the newest launch's choice was made in: of the choice before it, not of itself.
  [[nodiscard]] const State& chosen_in() const { return chosen_in_; }
  /// Median step of an arm, microseconds; nullopt when it was not measured.
  [[nodiscard]] std::optional<double> measured(std::size_t arm) const;

 private:
  Task task_;
  LaunchSearchOptions options_;
  std::unique_ptr<Agent> agent_;
  TaskLoop loop_;
  ArmHistory history_;
  State chosen_in_;
};

}  // namespace dynamiccl
