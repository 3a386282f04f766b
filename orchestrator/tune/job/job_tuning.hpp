#pragma once

#include <chrono>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/statistics/verdict.hpp"
#include "db/decision_log.hpp"
#include "orchestrator/run/console.hpp"
#include "orchestrator/tune/job/job_trial.hpp"
#include "tuner/agents/kernel_means.hpp"
#include "tuner/job/launch_agent.hpp"
#include "tuner/job/launch_space.hpp"
#include "tuner/search/task_machine.hpp"

namespace dynamiccl {

/// What `tune -- COMMAND` was asked for.
struct JobTuningOptions {
  std::string agent = "bandit";            ///< between launches
  std::string call_agent = kDefaultAgent;  ///< inside them; "none": call settings stay NCCL's
  AgentOptions agent_options{};
  int launches = 11;  ///< of the search, the observed one included
  /// Pairs before each look, and looks: a large gain is sure after three pairs. As many looks
  /// at 99 % as these keep no more than 1 of 40 by chance.
  ConfirmationRule confirmation{3, 6, 0.99, 0.02};
  double trial_seconds = 60;
  /// Of all launches, half of it to search.
  double budget_s = std::numeric_limits<double>::infinity();
  std::size_t steps = 12;
  std::size_t warmup = 3;
  double learn_seconds = 10;
  double learn_cost = 0.02;  ///< see LearnerOptions; where the job is started once
  JobConstraints constraints{};
  std::shared_ptr<const GlooTimes> gloo{};       ///< what Gloo took; see GlooFloor
  std::optional<ParallelismMode> parallelism{};  ///< see JobLeaderOptions
  bool whole = false;  ///< judged by the command's whole time, which must end by itself
};

/// Settings of a job: variables of its launch and a table per call.
struct JobChoice {
  std::map<std::string, std::string> variables;
  /// The same as a configuration table names them, of a job that is not NCCL's.
  std::map<std::string, std::string> knobs{};
  bool whole = false;  ///< it was judged by the command's whole time
  CallTable table{};
  TableOrigin origin;
  std::vector<TableEntry> entries;  ///< rows of a configuration table, with the launch's knobs
  [[nodiscard]] bool is_default() const { return variables.empty() && table == CallTable{}; }
};

struct JobTuningResult {
  JobFacts facts;
  JobTrialResult observed;   ///< the default, looked at alone
  std::size_t settings = 0;  ///< launch settings in all
  int search_launches = 0;
  int confirm_launches = 0;
  int failed_launches = 0;
  int failed_confirmations = 0;                 ///< of them, launches of pairs
  std::string failure;                          ///< why the last of these failed
  std::size_t pairs = 0;                        ///< of which both launches worked
  JobChoice choice;                             ///< the default's when nothing was FASTER
  std::string arm;                              ///< of what was confirmed, kept or not
  std::optional<double> default_us, chosen_us;  ///< medians of fresh launches
  std::optional<Ratio> ratio;
  Verdict verdict = Verdict::unclear;
  std::vector<DecisionInfo> decisions;
  std::vector<std::string> notes;
  int interrupted_by = 0;
  bool out_of_time = false;  ///< the budget has ended the pairs
  /// The pairs were there, and too few of their launches worked to say anything.
  [[nodiscard]] bool unjudged() const {
    return failed_confirmations > 0 && !ratio && interrupted_by == 0;
  }
  /// Something else than the default won the search: without that nothing has a verdict.
  [[nodiscard]] bool compared() const { return !arm.empty() && arm != "default"; }
  [[nodiscard]] bool kept() const { return verdict == Verdict::faster && !choice.is_default(); }
};

/// It is to be cheap: a search looks more often.
inline constexpr int kLooksOfRecheck = 2;

/// Drives the task machine by launches of a job, to find what makes its step faster: one launch is
/// looked at, launch settings are tried in further ones with call settings learnt inside, and what
/// seems best is compared with the default on fresh launches in turn. Decisions are stored as they
/// come, so that a search that was cut short leaves what it knew.
class JobTuning {
 public:
  JobTuning(const JobCommand& command, const JobTuningOptions& options, Console& console,
            std::function<void(const DecisionAuthor&, const std::vector<DecisionInfo>&)> store);

  /// @throws Error(input) when the job cannot be tuned, with the reason and what to do
  JobTuningResult search_and_confirm();
  /// A stored choice against the default, on a few fresh launches.
  JobTuningResult recheck(const JobChoice& choice);

 private:
  JobTrialResult launch(const JobChoice& setting, double learn_seconds, bool times_calls,
                        const std::string& what, const std::string& label = "");
  void observe();
  void observe_other(Backend library);
  void require_tunable(const JobTrialResult& seen) const;
  void require_watched(JobTrialResult& seen, Backend library);
  ActionSpace other_space(const std::optional<MainTraffic>& traffic);
  void make_search();
  void say_floor() const;
  OneHostWay offered_one_host();
  void note_one_host(const JobChoice& setting, const JobTrialResult& trial);
  /// Measures and answers until the machine has settled.
  void drive(TaskEvent event);
  TaskEvent measured(std::size_t arm);
  TaskEvent pair_launch(std::size_t arm);
  TaskEvent answer(bool may_try);
  /// Would another launch go beyond this share of the budget?
  [[nodiscard]] bool is_spent(double share) const;
  void learn(const Choice& choice, const JobTrialResult& trial);
  /// Where no launch setting is faster, the calls' settings are still to be learnt under the
  /// default: the last launch is kept for that.
  [[nodiscard]] bool owes_default_a_launch() const;
  TaskEvent try_arm(const Choice& choice);
  void consider(const JobChoice& choice, Micros step, const std::string& arm);
  void judge_pairs();
  void store_call_decisions(const JobTrialResult& trial, const std::string& label);
  [[nodiscard]] JobChoice setting_of(std::size_t arm) const;
  [[nodiscard]] std::string text_of(std::size_t arm) const;
  [[nodiscard]] DecisionInfo launch_decision(const char* kind, std::size_t arm,
                                             const State& state) const;
  [[nodiscard]] std::string with_flags(const std::string& candidates_json) const;

  const JobCommand& command_;
  const JobTuningOptions& options_;
  Console& console_;
  std::function<void(const DecisionAuthor&, const std::vector<DecisionInfo>&)> store_;
  std::shared_ptr<Agent> call_agent_;
  DecisionAuthor author_;
  JobTuningResult result_;
  TaskState machine_;
  Task task_;
  std::unique_ptr<Agent> agent_;
  std::optional<TaskLoop> loop_;  ///< empty: nothing is searched
  std::optional<ArmHistory> history_;
  Choice choice_{0, 1, false};  ///< that the next launch of the search tries
  bool search_over_ = false;    ///< the last launch of the search was chosen
  /// The best so far by the step: launch settings with the calls' that go with them.
  JobChoice best_;
  std::string best_arm_;
  std::size_t best_launch_arm_ = 0;
  double best_us_ = 0;
  bool best_settled_ = true;
  bool whole_ = false;  ///< the command's whole time stands for its step
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  double longest_s_ = 0;  ///< of the launches so far
  int launched_ = 0;
  int steps_logged_ = 0;
};

}  // namespace dynamiccl
