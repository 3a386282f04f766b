#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "tuner/agents/kernel_means.hpp"
#include "tuner/guards/gloo_floor.hpp"
#include "tuner/job/job_facts.hpp"
#include "tuner/job/job_watch.hpp"
#include "tuner/online/call_driver.hpp"

namespace dynamiccl {

/// How a leader learns in a job that runs: who searches, what it may set, and what it knows.
struct JobLeaderOptions {
  std::string agent = kDefaultAgent;
  AgentOptions agent_options{};
  /// Keeps what earlier launches of the job have taught; nullptr: an agent of the leader's own.
  std::shared_ptr<Agent> kept_agent{};
  /// probe_facts() of this machine.
  nlohmann::json host_facts = nlohmann::json::object();
  /// Distinguishes launches with different launch settings: what is learnt under one is only akin
  /// to the other's.
  std::string label{};
  bool learn = true;  ///< false: looks on and changes nothing
  std::uint32_t calls_per_trial = 20;
  double learn_cost = 0.02;  ///< see LearnerOptions
  int most_rounds = 0;
  /// What Gloo took, here or elsewhere: in this job's place it is a floor; nullptr: not known.
  std::shared_ptr<const GlooTimes> gloo{};
  /// How the job is spread over its ranks, where its user says it: its calls do not show it.
  std::optional<ParallelismMode> parallelism{};
  /// The table that the job was started with.
  CallTable start{};
  std::function<void(const DecisionRecord&)> on_decision{};
  std::function<void(const std::string&)> on_event{};  ///< see LearnerOptions
};

/// What leading has cost and spared.
struct LeaderCost {
  double wall_s = 0;
  double cpu_s = 0;  ///< of the leading thread
  int choices = 0;
  double choice_us = 0;  ///< mean time of one choice: what every rank would spend without a leader
};

/// A communicator's table, and whose it is.
struct LedTable {
  CallTable table;
  std::uint32_t epoch = 0;
  unsigned ranks = 0;
  unsigned nodes = 0;           ///< as NCCL counts them
  std::vector<CallCost> costs;  ///< what NCCL expects of the sizes that it has decided
};

/// Puts a learner's row among those of others; one per key. A learner that has measured nothing yet
/// knows less than whoever was there before it.
void put_row(std::map<RegimeKey, TableEntry>& rows, TableEntry row);

/// Leads all communicators of one job on this host: waits until the regime is known, then a learner
/// each. One thread calls step() every few milliseconds.
class JobLeader {
 public:
  /// @throws Error(input) for an unknown agent or a policy that is not there
  JobLeader(std::string folder, const JobLeaderOptions& options);

  /// @returns false when all communicators that were there have gone
  bool step();
  /// From now on learners are made, if the options had forbidden it so far.
  void begin_learning() { options_.learn = true; }

  [[nodiscard]] JobWatch& watch() { return watch_; }
  [[nodiscard]] const std::optional<JobFacts>& facts() const { return facts_; }
  /// Of this job's place; empty until the regime is known.
  [[nodiscard]] const GlooFloor& floor() const { return floor_; }
  /// Every learner has settled, and there is one.
  [[nodiscard]] bool settled() const;
  [[nodiscard]] bool leads() const { return !learners_.empty(); }
  /// Of the communicator with the most ranks; nullopt without a learner.
  [[nodiscard]] std::optional<LedTable> table() const;
  /// Rows of all learners, by key; one per key.
  [[nodiscard]] std::vector<TableEntry> entries() const;
  /// By the leading thread.
  [[nodiscard]] LeaderCost cost() const;
  /// For people, one line per communicator.
  [[nodiscard]] std::vector<std::string> summary() const;
  /// Where a communicator's ranks are not all in this folder: why none of its calls is led; ""
  /// otherwise. Only once its ranks have begun to call.
  [[nodiscard]] std::string beyond_this_host() const;
  /// What kept it from leading, so far: damaged files, another leader, captured graphs.
  [[nodiscard]] const std::vector<std::string>& problems() const { return problems_; }

 private:
  using Clock = std::chrono::steady_clock;
  void look();
  void read_facts();
  void meet_regions();
  void hear_calls();
  [[nodiscard]] LearnerOptions learner_options(std::uint64_t communicator);
  [[nodiscard]] std::optional<Micros> gloo_takes(std::uint64_t communicator, std::size_t function,
                                                 std::size_t bin);
  void problem(const std::string& text);

  std::string folder_;
  JobLeaderOptions options_;
  std::shared_ptr<Agent> agent_;
  DecisionAuthor author_;
  JobWatch watch_;
  std::optional<JobFacts> facts_;
  GlooFloor floor_;
  std::map<std::string, std::unique_ptr<CallDriver>> learners_;
  std::map<std::string, bool> refused_;
  std::map<std::string, bool> gone_;
  std::int64_t heard_until_ns_ = 0;
  int rhythm_changes_ = 0;
  std::vector<std::string> problems_;
  Clock::time_point began_ = Clock::now();
  Clock::time_point looked_{};
  Clock::time_point facts_read_{};
  std::optional<double> cpu_began_s_;  ///< of the leading thread, when it began
};

}  // namespace dynamiccl
