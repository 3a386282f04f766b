#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "tuner/action/spaces.hpp"
#include "tuner/agents/task_loop.hpp"
#include "tuner/control/leader.hpp"
#include "tuner/guards/guards.hpp"
#include "tuner/job/decision_record.hpp"
#include "tuner/job/job_watch.hpp"
#include "tuner/reward/reward.hpp"
#include "tuner/table/table.hpp"
#include "tuner/trigger/trigger.hpp"

namespace dynamiccl {

/// What is known of one communicator's surroundings, and who learns.
struct LearnerOptions {
  std::string agent = "bandit";
  AgentOptions agent_options{};
  /// Instead of an agent of its own: one that remembers what other communicators and launches of
  /// the job have taught. Must outlive the learner.
  Agent* shared_agent = nullptr;
  DecisionAuthor author{};
  SpaceOptions space{};
  /// What the regime and NCCL allow; collective, size, ranks and nodes are filled in.
  SpaceContext context{};
  /// What is learnt is learnt for this: the regime's id, perhaps with what tells launches apart.
  std::string regime = "unknown";
  std::string regime_id{};  ///< that records name; "" = the same
  std::string regime_name{};
  State state{};  ///< static part
  GuardLimits limits{};
  RewardWeights weights{};
  /// Calls of a size under one setting before it is judged.
  std::uint32_t calls_per_trial = 20;
  /// Steps under one table before it is judged, where steps are known.
  std::size_t steps_per_trial = 3;
  /// Calls between the furthest rank and a boundary at first; doubled when a proposal fails.
  std::int64_t ahead = 16;
  /// Sizes that take less than this share of the collectives' time are left alone.
  double least_share = 0.01;
  /// Rounds after which what is known decides; 0: the agent says.
  int most_rounds = 0;
  /// The table that the job was started with, as rows of arms are unknown for it.
  CallTable start{};
  /// Steps under the table of an epoch; empty: calls alone are judged.
  std::function<std::optional<StepReading>(std::uint32_t epoch)> steps{};
  /// The step under the table of an epoch as it is now (JobWatch::recent_step); empty: a change of
  /// calls alone is reason enough to search anew.
  std::function<std::optional<Micros>(std::uint32_t epoch)> recent_step{};
  /// What NCCL expects of algorithms and protocols (CallStreamHeader::predicted); may be empty.
  std::function<std::optional<std::array<float, kPredictions>>(std::size_t function,
                                                               std::size_t bin)>
      predicted{};
  /// Nanoseconds of the job's time; empty: monotonic_ns().
  std::function<std::int64_t()> now_ns{};
  std::function<void(const DecisionRecord&)> on_decision{};
  /// For people: settled, and what has changed since; as it happens, from the leading thread.
  std::function<void(const std::string&)> on_event{};
};

/// Learns one communicator's per-call settings while its job runs: every size with traffic is a
/// task of its own; each round proposes one table with an arm per task, and judges it by what the
/// plugin's profiler half has summed up and by the job's step. What makes the step slower is taken
/// back. Frozen sizes are watched: a change re-opens them. Never holds the job up.
class OnlineLearner {
 public:
  /// @throws Error(environment) when another leader holds the region
  OnlineLearner(std::shared_ptr<Region> region, const LearnerOptions& options);
  OnlineLearner(std::unique_ptr<TableLeader> leader, const LearnerOptions& options);
  /// One look at the ranks; cheap, call it every few milliseconds.
  /// @returns false when the job's communicator is gone
  bool step();
  /// One call's time on the GPU, under the table of `epoch`: what the trigger watches.
  void hear(std::size_t function, std::size_t bin, std::uint32_t epoch, Micros latency);
  /// The surroundings have changed: everything is measured anew, the default first.
  void reopen();

  [[nodiscard]] bool finished() const;  ///< every task seen so far has its final setting
  [[nodiscard]] int rounds() const { return rounds_; }
  [[nodiscard]] int aborted() const { return aborted_; }
  [[nodiscard]] int alarms() const { return alarms_; }
  [[nodiscard]] int rolled_back() const { return rolled_back_; }
  [[nodiscard]] const CallTable& table() const { return table_; }  ///< last committed
  [[nodiscard]] std::uint32_t epoch() const { return epoch_; }     ///< of it
  [[nodiscard]] std::size_t tasks() const { return tasks_.size(); }
  [[nodiscard]] int choices() const { return choices_; }             ///< inferences so far
  [[nodiscard]] Micros choice_time() const { return choice_time_; }  ///< of all of them
  [[nodiscard]] const Region& region() const { return leader_.region(); }
  /// Final settings with what was measured, as rows of a configuration table.
  [[nodiscard]] std::vector<TableEntry> entries() const;

 private:
  struct Cell {
    std::size_t function = 0;
    std::size_t bin = 0;
    auto operator<=>(const Cell&) const = default;
  };
  struct Learning {
    TaskLoop loop;  ///< its choice is what the table in use has
    Task task{};
    Choice proposed{0, 1, false};  ///< that the next one has
    double default_us = 0;
    double last_us = 0;   ///< of the loop's last arm
    bool closed = false;  ///< a guard has ended its exploration
    GuardVerdict guard = GuardVerdict::pass;
    Trigger trigger{};
    std::uint32_t heard_epoch = 0;  ///< of the calls that the trigger knows
  };

  /// From where an earlier leader has left off.
  void take_over();
  void find_tasks();
  [[nodiscard]] Learning make_task(const Cell& cell) const;
  [[nodiscard]] std::optional<CellObservation> seen(const Cell& cell) const;
  [[nodiscard]] bool far_too_slow() const;
  [[nodiscard]] bool round_measured();
  void learn_round();
  void learn_cell(const Cell& cell, Learning& learning, const CellObservation& seen,
                  const std::optional<StepReading>& step, double slowdown);
  void record(const Learning& learning, const LoopStep& done, std::int64_t calls, double us,
              const std::optional<StepReading>& step);
  [[nodiscard]] std::int64_t now_ns() const;
  void note_step(const std::optional<StepReading>& step);
  void tell_when_settled();
  /// Is this reading surely slower than the best one?
  [[nodiscard]] bool slower_than_best(const StepReading& step) const;
  /// A change of calls is no reason to search anew until it is seen in the steps, where there are
  /// any.
  void judge_suspicion();
  [[nodiscard]] bool steps_have_changed() const;
  void propose_round();
  void propose(const CallTable& table);
  [[nodiscard]] bool settled(const Learning& learning) const;
  [[nodiscard]] std::size_t final_arm(const Learning& learning) const;
  [[nodiscard]] CallCell cell_of(const Learning& learning, std::size_t arm) const;
  [[nodiscard]] Agent& agent() const { return *agent_; }

  std::unique_ptr<TableLeader> owned_leader_;
  TableLeader& leader_;
  LearnerOptions options_;
  std::unique_ptr<Agent> own_agent_;
  Agent* agent_;
  std::map<Cell, Learning> tasks_;
  CallTable table_{};
  CallTable proposed_{};
  std::uint32_t epoch_ = 0;
  std::int64_t ahead_;
  bool proposing_ = false;
  bool admitted_ = false;
  bool unknown_table_ = false;
  bool told_settled_ = false;
  std::int64_t last_calls_ = -1;
  std::int64_t round_began_ns_ = 0;
  int rounds_ = 0;
  int aborted_ = 0;
  int alarms_ = 0;
  int rolled_back_ = 0;
  int choices_ = 0;
  Micros choice_time_{};
  /// The best table so far by the step, and the default's; 0: not known.
  double default_step_us_ = 0;
  double best_step_us_ = 0;
  double best_step_error_ = 0;  ///< standard error of that median, a part of it
  double settled_step_us_ = 0;  ///< soon after all had settled; 0: not known
  std::string suspicion_{};     ///< calls that have changed, for people; "": none
  std::int64_t suspected_ns_ = 0;
  CallTable best_table_{};
  bool forced_back_ = false;  ///< the final table was slower than the best one: that one stays
};

}  // namespace dynamiccl
