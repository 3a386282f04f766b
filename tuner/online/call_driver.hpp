#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "plugin/agreement/leader.hpp"
#include "tuner/action/spaces.hpp"
#include "tuner/agents/task_loop.hpp"
#include "tuner/guards/guards.hpp"
#include "tuner/job/decision_record.hpp"
#include "tuner/job/job_watch.hpp"
#include "tuner/reward/reward.hpp"
#include "tuner/search/task_machine.hpp"
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
  /// A setting of a size that is neither clearly slower nor faster is given up after so many calls
  /// of it, and two bursts of them.
  std::uint32_t calls_per_trial = 20;
  /// Part of the job's time so far that settings which turn out slower may cost, all searches
  /// together, but for those under way when it is used up; 0: as much as it takes.
  double learn_cost = 0.02;
  /// Of the time of so many steps at least: a job that has just begun is believed to last that
  /// long.
  std::size_t least_horizon = 1000;
  /// Settings of a size that are tried at most; 0: the agent says.
  int most_rounds = 0;
  /// The table that the job was started with, as rows of arms are unknown for it.
  CallTable start{};
  /// Steps under the table of an epoch; empty: calls alone are judged.
  std::function<std::optional<StepReading>(std::uint32_t epoch)> steps{};
  /// The step under the table of an epoch as it is now (JobWatch::recent_step); empty: a change of
  /// calls alone is reason enough to search anew.
  std::function<std::optional<Micros>(std::uint32_t epoch)> recent_step{};
  /// JobWatch::latest_step(); empty: several steps are awaited before a change is believed.
  std::function<std::optional<Micros>()> latest_step{};
  /// What NCCL expects of algorithms and protocols (CallStreamHeader::predicted); may be empty.
  std::function<std::optional<std::array<float, kPredictions>>(std::size_t function,
                                                               std::size_t bin)>
      predicted{};
  /// Gloo's time of a call as large as the job's largest of the size; may be empty. Settings whose
  /// calls take more than GuardLimits::gloo_floor times as long are left for the library's own.
  std::function<std::optional<Micros>(std::size_t function, std::size_t bin)> gloo_floor{};
  /// Nanoseconds of the job's time; empty: monotonic_ns().
  std::function<std::int64_t()> now_ns{};
  std::function<void(const DecisionRecord&)> on_decision{};
  /// For people: settled, and what has changed since; as it happens, from the leading thread.
  std::function<void(const std::string&)> on_event{};
};

/// Drives task machines by the calls of a running job: every size of a communicator with traffic is
/// a task, and what runs under a setting follows when the ranks have agreed on it. What trying has
/// cost is summed up, and ends when it reaches its part of the job's time. When all sizes have
/// settled, the table is compared by the job's step with the one that the search began with, and
/// with the library's own settings where those were others, and taken back when its steps are
/// longer. Then calls are watched: a change re-opens the search, in which the agent alone decides.
/// Never holds the job up.
class CallDriver {
 public:
  /// @throws Error(environment) when another leader holds the region
  CallDriver(std::shared_ptr<Region> region, const LearnerOptions& options);
  /// One look at the ranks; cheap, call it every few milliseconds.
  /// @returns false when the job's communicator is gone
  bool step();
  /// One call's time on the GPU, under the table of `epoch`: what the trigger watches.
  void hear(std::size_t function, std::size_t bin, std::uint32_t epoch, Micros latency);
  /// The surroundings have changed: the agent searches anew.
  void reopen() { search_anew(false); }

  [[nodiscard]] bool finished() const;  ///< every task seen so far has its final setting
  [[nodiscard]] int rounds() const { return rounds_; }  ///< settings tried since the search began
  /// What settings that turned out slower have cost so far.
  [[nodiscard]] Micros lost() const { return Micros(lost_us_); }
  [[nodiscard]] int aborted() const { return aborted_; }
  [[nodiscard]] int alarms() const { return alarms_; }
  [[nodiscard]] int rolled_back() const { return rolled_back_; }
  /// Sizes whose settings were left as Gloo takes less than half of their time.
  [[nodiscard]] int above_floor() const { return above_floor_; }
  [[nodiscard]] const CallTable& table() const { return table_; }  ///< last committed
  [[nodiscard]] std::uint32_t epoch() const { return epoch_; }     ///< of it
  [[nodiscard]] std::size_t tasks() const { return tasks_.size(); }
  [[nodiscard]] int choices() const { return choices_; }             ///< inferences so far
  [[nodiscard]] Micros choice_time() const { return choice_time_; }  ///< of all of them
  [[nodiscard]] const Region& region() const { return leader_.region(); }
  /// Final settings with what was measured, as rows of a configuration table.
  [[nodiscard]] std::vector<TableEntry> entries() const;

 private:
  /// Steps and calls are waited for no longer than this: a job may have no rhythm any more.
  static constexpr std::int64_t kPatienceNs = 5'000'000'000;
  /// A size without a call in so many steps is not called any more.
  static constexpr std::size_t kSilentSteps = 2;
  /// Of what is kept, after which a candidate takes its place or an earlier table is known again.
  static constexpr std::size_t kSamplesAgain = 3;
  struct Cell {
    std::size_t function = 0;
    std::size_t bin = 0;
    auto operator<=>(const Cell&) const = default;
  };
  struct Learning {
    TaskLoop loop;  ///< its choice is what the table in use has
    Task task{};
    TaskState machine{};
    Choice proposed{0, 1, false};           ///< that the next table is to have
    Choice under_way{0, 1, false};          ///< that the table has which the ranks are agreeing on
    bool searched = false;                  ///< it has settled before
    std::optional<RegimeKey> before{};      ///< what agents know it by from before the last change
    double level = 0;                       ///< ln(us) of what is kept, in the terms of `known`
    std::map<std::size_t, double> known{};  ///< ln(us) of arms, as if at one time
    double share = 0;                       ///< of the collectives' time
    double trying_us = 0;                   ///< more than what is kept takes, of what is tried now
    double lost_us = 0;                     ///< by trying, since the search began
    std::uint32_t read_epoch = 0;
    std::uint32_t read_calls = 0;
    double read_us = 0;
    double open_us = 0;  ///< of a burst that goes on
    std::uint32_t open_calls = 0;
    std::int64_t heard_ns = 0;  ///< when its last call was seen
    double default_us = 0;
    double last_us = 0;                 ///< of what is kept
    std::optional<Micros> floor{};      ///< Gloo's time
    bool below_floor = false;           ///< the library's own was asked in this search
    std::optional<std::size_t> left{};  ///< for it; it may turn out to take longer still
    bool closed = false;                ///< a guard has ended its exploration
    GuardVerdict guard = GuardVerdict::pass;
    Trigger trigger{};
    std::uint32_t heard_epoch = 0;  ///< of the calls that the trigger knows
  };
  /// What all sizes had settled on, before their surroundings changed.
  struct Settlement {
    CallTable table{};
    std::map<Cell, double> level{};  ///< ln(us)
  };
  /// Steps decide whether a table stays that the calls have chosen.
  enum class Check {
    none,
    chosen,  ///< steps under what was learnt are counted
    old,     ///< those under the table that the search began with, anew
    own,     ///< those under the library's own settings, where that table had others
    again,   ///< what was found to be faster is on its way back
    done
  };

  /// From where an earlier leader has left off.
  void take_over();
  void find_tasks();
  [[nodiscard]] Learning make_task(const Cell& cell);
  [[nodiscard]] std::optional<CellObservation> seen(const Cell& cell) const;
  [[nodiscard]] std::int64_t now_ns() const;
  void take_samples();
  void count_lost(Learning& learning);
  void take(Learning& learning, Micros mean, std::uint32_t calls);
  [[nodiscard]] bool may_try(const Learning& learning) const;
  [[nodiscard]] bool base_known();
  void advance(Learning& learning);
  /// What the task machine makes of an event; the table follows when the ranks agree.
  void tell(Learning& learning, const TaskEvent& event, double propensity = 1,
            bool exploratory = false);
  void revert(Learning& learning, std::size_t arm);
  void answer(Learning& learning);
  /// A broken selection gives way to the library's own settings; @return it did, or came back as
  /// these take longer still
  bool hold_to_floor(Learning& learning, Micros time);
  void watch_floor(Learning& learning);
  [[nodiscard]] bool is_above_floor(const Learning& learning, Micros time) const;
  void begin_trial(Learning& learning, const Choice& choice);
  void settle(Learning& learning);
  void learn(Learning& learning, double log_us, std::int64_t calls);
  /// An implementation that was not seen with its own resources.
  [[nodiscard]] std::optional<std::size_t> unseen_kind(const Learning& learning) const;
  /// What is worth a look when the agent has none left; nullopt: nothing.
  [[nodiscard]] std::optional<std::size_t> unseen(const Learning& learning) const;
  /// All sizes: their surroundings have changed.
  void search_all_again();
  void search_again(Learning& learning);
  /// As agents know the job's surroundings, which a change makes others.
  [[nodiscard]] std::string surroundings() const;
  [[nodiscard]] std::size_t arm_of(const Learning& learning, const CallCell& cell) const;
  void record(const Learning& learning, const LoopStep& done, std::int64_t calls, double us);
  [[nodiscard]] std::optional<StepReading> reading() const;
  [[nodiscard]] bool all_settled() const;
  /// Goes on with holding the chosen table against the old one; @return the check is over
  bool check_step();
  void stand(const StepReading& chosen);
  void take_back(const StepReading& old, const char* to);
  void go_on(Check next);
  [[nodiscard]] bool enough_steps(std::optional<StepReading>& step) const;
  /// Whether so many steps should have come since then; a job's may take longer than kPatienceNs.
  [[nodiscard]] bool waited_for(std::size_t steps, std::int64_t since_ns) const;
  /// Does the table leave every size that is searched to the library?
  [[nodiscard]] bool is_default(const CallTable& table) const;
  /// The decision log's row of what steps said: `chosen_step_` against the step under another
  /// table.
  void record_check(GuardVerdict guard, const char* against, const StepReading& other);
  /// A new size is to be searched first.
  void leave_check();
  void restore(const Settlement& settlement);
  void see_restored();
  [[nodiscard]] bool is_as_before(const Settlement& settlement) const;
  void tell_when_settled();
  /// A change of calls is no reason to search anew until it is seen in the steps, where there are
  /// any.
  void judge_suspicion();
  [[nodiscard]] bool steps_have_changed() const;
  void search_anew(bool faster);
  void finish_proposal();
  void propose_wanted();
  void propose(const CallTable& table);
  void ask_ranks();
  [[nodiscard]] CallCell cell_of(const Learning& learning, std::size_t arm) const;
  [[nodiscard]] Agent& agent() const { return *agent_; }

  Leader leader_;
  LearnerOptions options_;
  std::unique_ptr<Agent> own_agent_;
  Agent* agent_;
  std::map<Cell, Learning> tasks_;
  CallTable table_{};
  CallTable proposed_{};
  std::uint32_t epoch_ = 0;
  /// Of all sizes' calls, each compared with its own size's level: a job that sends many sizes
  /// shows a change to all of them long before one size has enough calls.
  Trigger together_{{.least_change = 0.8}};
  std::uint32_t together_epoch_ = 0;
  /// Calls between the furthest rank and a boundary; doubled when a proposal fails. What is tried
  /// runs for as many calls more.
  std::int64_t ahead_ = 8;
  bool proposing_ = false;
  bool admitted_ = false;
  bool unknown_table_ = false;
  bool told_settled_ = false;
  std::int64_t began_ns_ = 0;   ///< of leading
  std::int64_t search_ns_ = 0;  ///< of the search
  int rounds_ = 0;
  int aborted_ = 0;
  int alarms_ = 0;
  int changes_ = 0;  ///< of the surroundings, after which all was searched again
  int rolled_back_ = 0;
  int above_floor_ = 0;
  int choices_ = 0;
  Micros choice_time_{};
  double lost_us_ = 0;          ///< by trying, in all
  double settled_step_us_ = 0;  ///< soon after all had settled; 0: not known
  std::string suspicion_{};     ///< calls that have changed, for people; "": none
  bool faster_ = false;         ///< they have become so
  std::int64_t suspected_ns_ = 0;
  Check check_ = Check::none;
  CallTable base_{};  ///< that the search began with
  std::optional<StepReading> base_step_{};
  std::optional<StepReading> chosen_step_{};
  /// Steps under the library's own settings over those under what was chosen, when they were last
  /// compared with each other; 0: never.
  double own_pace_ = 0;
  std::int64_t check_ns_ = 0;
  std::optional<Settlement> settled_{};    ///< what is in force, once settled
  std::vector<Settlement> settlements_{};  ///< earlier ones, newest last
  bool restoring_ = false;
};

}  // namespace dynamiccl
