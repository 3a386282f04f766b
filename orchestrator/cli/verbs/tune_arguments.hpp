#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "db/store.hpp"
#include "db/table.hpp"
#include "orchestrator/cli/verbs/experiment_arguments.hpp"
#include "orchestrator/cli/verbs/verbs.hpp"
#include "orchestrator/tune/evaluator.hpp"
#include "orchestrator/tune/job/job_tuning.hpp"
#include "orchestrator/tune/tune_output.hpp"
#include "tuner/agents/agent.hpp"

namespace dynamiccl {

/// Words of --places: start from nothing; from the file that comes along.
inline constexpr const char* kNoPlaces = "none";
inline constexpr const char* kShippedPlaces = "shipped";

/// What `tune` was asked for.
struct TuneArguments {
  ExperimentArguments experiment;
  std::string agent;
  std::string policy;
  std::string places = kNoPlaces;  ///< or kShippedPlaces, or a file
  std::string table = "results/tuned.json";
  std::string out;
  std::string from;
  std::string apply;
  std::string check;
  double check_seconds = 360;
  std::vector<std::string> agents;
  int evaluations = 0;
  int seeds = 10;
  std::uint64_t seed = 1;
  bool sweep = false;
  bool replay = false;
  bool confirm = false;
  bool resume = false;
  bool between_runs = false;
  bool any_environment = false;  ///< the environment is an arm between runs, too
  bool own = false;

  // Of `tune -- COMMAND`.
  std::string call_agent = kDefaultAgent;
  int launches = 11;
  std::string budget;        ///< time that a search and its pairs may take; "" = as they need
  std::optional<int> pairs;  ///< before each look; not given: JobTuningOptions
  std::size_t steps = 12;
  std::size_t warmup = 3;
  double trial_seconds = 60;
  double learn_seconds = 10;
  std::string most_gpu_memory;
  int most_cores = 0;
  bool same_bits = false;
  bool whole = false;       ///< judged by the command's whole time
  std::string parallelism;  ///< of the job; "" = not said
  bool online = false;
  double learn_cost = 2;  ///< percent, of --online
  bool recheck = false;
  std::string plugin;
  std::string gloo_floor;
};

AgentOptions agent_options(const TuneArguments& arguments);
void print_table(const Table& table, const Shared& shared);

void print_tuning(const TunePlan& plan, const TuningResult& result, TuningKind kind,
                  const Shared& shared);

/// Is it a search, which machines that SimGrid simulates may have too?
bool may_be_simulated(const TuneArguments& arguments);
/// @throws Error(input) for options of searches that a simulated one has no use for
void refuse_what_simulations_lack(const TuneArguments& arguments);
/// Prints what a search over simulated cells found; no file is written that a job could load.
/// @returns the exit code
int finish_simulated(const TuningResult& result, const TunePlan& plan, const Experiment& experiment,
                     const Shared& shared, const Console& console);

/// The row of a run of these arguments; `mark` says what kind of tuning it is.
RunInfo tune_run(const TuneArguments& arguments, const Experiment& experiment, const Shared& shared,
                 const std::string& mark);

/// Begins a run, lets `body` measure in it, and ends it as it went.
/// @returns what `body` returns: the exit code
int measure_in_run(const TuneArguments& arguments, const Shared& shared, const RunInfo& info,
                   const Experiment& experiment, const TunePlan& plan, Console& console,
                   const std::function<int(LaunchEvaluator&)>& body);

/// `tune -- COMMAND`: somebody's own job.
void add_job_options(CLI::App& verb, TuneArguments& arguments);
int run_job_tuning(const TuneArguments& arguments, const Shared& shared);

/// `tune --online -- COMMAND`: the job is started once, and its calls are learnt meanwhile.
/// @param store the decisions of its leader
/// @returns the exit code
int run_online(
    const JobCommand& command, const JobTuningOptions& options,
    const std::function<void(const DecisionAuthor&, const std::vector<DecisionInfo>&)>& store,
    const std::string& run, const Shared& shared, const Console& console);

/// `tune replay`: agents search a stored sweep; with --confirm what they choose is then measured.
int run_replay(const TuneArguments& arguments, const Shared& shared);

}  // namespace dynamiccl
