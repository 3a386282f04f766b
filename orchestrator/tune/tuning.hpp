#pragma once

#include <string>
#include <vector>

#include "db/decision_log.hpp"
#include "orchestrator/tune/evaluator.hpp"
#include "tuner/agents/kernel_means.hpp"
#include "tuner/table/table.hpp"

namespace dynamiccl {

/// What a live search left for one task, confirmed on fresh launches.
struct TunedTask {
  std::size_t task = 0;
  std::size_t arms = 0;  ///< settings there are, the default among them
  SearchOutcome outcome;
  /// What fresh launches compared with the default: the search's choice, where that is the default
  /// the fastest setting it measured; 0 = nothing.
  std::size_t candidate = 0;
  std::optional<Ratio> ratio;  ///< of these launches
  TableEntry entry;
  /// Where the lossless way is flagged as saturated: the lossy one that was confirmed to be faster.
  std::string helped_by;
};

struct TuningResult {
  std::vector<TunedTask> tasks;  ///< in the plan's order
  int evaluations = 0;
  std::size_t arms = 0;  ///< what exhaustive would need
  std::string agent;     ///< who searched; "" = nobody
  bool spent = false;    ///< the search ended with its last measurement, not of itself
  int interrupted_by = 0;
};

/// A measurement that an earlier run made of a task's arm.
struct Experience {
  std::size_t task = 0;
  std::size_t arm = 0;
  std::string regime_id;  ///< in which it was made
  Micros time;
};

struct TuningOptions {
  std::string agent = kDefaultAgent;
  AgentOptions agent_options;
  int evaluations = 0;  ///< of all tasks together; 0 = the experiment's share of exhaustive
  int confirm_launches = 10;
  /// What is known before the first launch, given to the agent in this order.
  std::vector<Experience> experience;
};

/// Searches the tasks with fresh launches, confirms every choice against the default on further
/// fresh ones, and logs every decision. A choice that is not confirmed is taken back.
TuningResult tune_live(TunePlan& plan, LaunchEvaluator& evaluator, DecisionLog& log,
                       Console& console, const std::string& run_id, const TuningOptions& options);

/// Measures a table's settings against the defaults on fresh launches. A task without a row, and a
/// row with a setting that the task does not have here, keep the default.
TuningResult apply_table(TunePlan& plan, LaunchEvaluator& evaluator, DecisionLog& log,
                         Console& console, const std::string& run_id, const TuningOptions& options,
                         const ConfigurationTable& table);

/// The decision log's row of a step.
DecisionInfo decision_of(const TunePlan& plan, const TuneTask& task, const SearchTask& search,
                         const SearchStep& step, std::uint64_t epoch);

/// Policy version of an agent with a policy; "" for the others.
std::string policy_version(const std::string& agent, const AgentOptions& options);

/// JSON of an agent's options, for the log; with a policy, also how that was trained, for reports.
nlohmann::json options_json(const std::string& agent, const AgentOptions& options);

}  // namespace dynamiccl
