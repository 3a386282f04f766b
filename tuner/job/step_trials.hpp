#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tuner/agents/agent.hpp"
#include "tuner/job/decision_record.hpp"
#include "tuner/reward/reward.hpp"
#include "tuner/search/task_machine.hpp"
#include "tuner/trigger/trigger.hpp"

namespace dynamiccl {

/// Calls of a step that share a setting.
struct StepTask {
  Task task;
  std::int64_t calls = 1;    ///< in each step
  std::vector<bool> usable;  ///< of each arm: the library takes it
};

/// One step under what arms() said.
struct StepSeen {
  double step_us = 0;
  std::vector<double> call_us;     ///< of each task's calls, together
  std::vector<bool> refused = {};  ///< of each task: the library would not run the arm
  std::optional<double> loss = {};
  /// Of each task, what it ran under; empty: arms().
  std::vector<std::uint32_t> arms = {};
  /// Of the GPU's multiprocessors, over the step: what the library's kernels took; none is known.
  std::optional<double> sm_share = {};
};

struct StepTrialsOptions {
  AgentOptions agent_options{};
  /// Steps of a trial, of which the first ones do not count: they end what the setting before had
  /// begun. The median of the others counts.
  int trial_steps = 1;
  int trial_skips = 0;
  /// The regime is its owner's to add.
  std::function<void(const DecisionRecord&)> on_decision{};
};

/// Drives the task machine by training steps: which settings of their calls make them shorter. One
/// task after the other, the others held, so that a step's time is the doing of one choice. When
/// all are settled, their calls' latency is watched, and a change begins the search anew. No step
/// that ran under an unlucky setting is wrong, only longer. One thread.
class StepTrials {
 public:
  StepTrials(std::vector<StepTask> tasks, StepTrialsOptions options);

  /// What the next step runs under, an arm for each task.
  [[nodiscard]] const std::vector<std::uint32_t>& arms() const { return arms_; }
  /// A step; nothing is learnt of one that ran under other arms than arms() says.
  void add(const StepSeen& seen);
  /// Nothing is tried at present.
  [[nodiscard]] bool frozen() const { return frozen_; }

  [[nodiscard]] int steps() const { return steps_; }
  /// Steps that ran until it froze first, 0 = not yet.
  [[nodiscard]] int frozen_after() const { return frozen_after_; }
  [[nodiscard]] int alarms() const { return alarms_; }
  [[nodiscard]] const std::vector<StepTask>& tasks() const { return tasks_; }
  /// Chosen over default where they were compared, of each task.
  [[nodiscard]] std::optional<Ratio> gain(std::size_t task) const;

 private:
  /// What is known of one task.
  struct Progress {
    TaskState machine{};
    std::vector<double> reference_steps_us{};
    std::vector<double> reference_calls_us{};
    std::set<std::size_t> tried{};  ///< arms that this search measured
    std::optional<std::size_t> last_arm{};
    double share = 0;  ///< of the communication
    int decisions = 0;
    Trigger trigger{};
    bool failed = false;  ///< what was tried last
  };
  /// What a trial measured; zero where it had no step.
  struct Brought {
    double step_us = 0;
    double call_us = 0;
    double sm_share = 0;
  };

  void end_trial();
  void learn(std::size_t task, const Brought& brought);
  void rank_tasks();
  void begin_task();
  void tell(TaskEvent event);
  void close_task();
  void freeze();
  void watch(const StepSeen& seen);
  void reopen();
  void rule_out_unusable();
  void put(const Choice& choice);
  void guard_loss(const StepSeen& seen);
  /// @param said of a final choice: what is recorded with the candidates
  void record(std::size_t task, const char* kind, const Brought& brought, GuardVerdict guard,
              const nlohmann::json& said = nlohmann::json::object());
  [[nodiscard]] std::optional<RewardTerms> judge(std::size_t task, const Brought& brought) const;
  [[nodiscard]] double median_of_trial(const std::function<double(const StepSeen&)>& part) const;

  StepTrialsOptions options_;
  std::unique_ptr<Agent> agent_;
  std::vector<StepTask> tasks_;
  std::vector<Progress> progress_;
  std::vector<std::size_t> order_;  ///< tasks worth a search, the largest share first
  std::size_t turn_ = 0;            ///< into order_
  std::vector<std::uint32_t> arms_;
  Choice choice_;
  std::optional<double> sm_share_;  ///< of the last step that recorded one
  std::vector<StepSeen> trial_;
  bool ranked_ = false;  ///< the tasks' shares are known
  bool frozen_ = false;
  bool diverged_ = false;  ///< the loss went under a setting: none is tried any more
  std::optional<double> last_loss_;
  std::uint64_t epoch_ = 1;
  int steps_ = 0;
  int frozen_after_ = 0;
  int trials_ = 0;
  int alarms_ = 0;
};

}  // namespace dynamiccl
