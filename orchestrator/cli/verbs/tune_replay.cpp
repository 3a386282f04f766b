#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/vocabulary/counted.hpp"
#include "orchestrator/cli/verbs/tune_arguments.hpp"
#include "orchestrator/launch/interrupt.hpp"
#include "orchestrator/tune/fresh_launches.hpp"
#include "orchestrator/tune/run_plan.hpp"
#include "orchestrator/tune/samples.hpp"
#include "orchestrator/tune/tune_output.hpp"

namespace dynamiccl {
namespace {

std::vector<Backend> backends_of(const TunePlan& plan) {
  std::vector<Backend> backends;
  for (const PlannedGroup& group : plan.base.groups)
    if (std::find(backends.begin(), backends.end(), group.backend) == backends.end())
      backends.push_back(group.backend);
  return backends;
}

/// Logs the steps of a replay, a search per agent and seed. What an agent saw is kept of its first
/// seed: of all of them it would make databases of gigabytes. Candidates are the sweep's.
class ReplayLog {
 public:
  ReplayLog(const TunePlan& plan, const std::string& db, std::string run_id, AgentOptions options)
      : plan_(plan), log_(db), run_id_(std::move(run_id)), options_(std::move(options)) {}

  void add(const ReplayStep& step) {
    DecisionInfo row = decision_of(plan_, plan_.tasks[step.task], *step.search, *step.step, 0);
    if (step.seed != 0) row.state_json.clear();
    row.candidates_json.clear();
    rows_[{step.agent, step.seed}].push_back(std::move(row));
  }
  void flush() {
    for (const auto& [search, rows] : rows_) {
      const auto& [agent, seed] = search;
      const auto tuning =
          log_.begin({run_id_, "replay", agent, policy_version(agent, options_),
                      static_cast<std::uint64_t>(seed), options_json(agent, options_).dump()});
      log_.add(tuning, rows);
    }
    rows_.clear();
  }

 private:
  const TunePlan& plan_;
  DecisionLog log_;
  std::string run_id_;
  AgentOptions options_;
  std::map<std::pair<std::string, int>, std::vector<DecisionInfo>> rows_;
};

/// A stored sweep, wherever it was measured: what this machine can do does not matter.
struct StoredSweep {
  Experiment experiment;
  std::string run_id;
  TunePlan plan;
  std::vector<SampledTask> tasks;
};

StoredSweep load_sweep(const TuneArguments& arguments, const std::string& db) {
  // What is measured again is measured here.
  LoadedExperiment loaded = arguments.confirm ? load_experiment(arguments.experiment)
                                              : load_experiment_of_anywhere(arguments.experiment);
  const Reader reader(db);
  StoredSweep sweep;
  sweep.run_id = arguments.from.empty()
                     ? find_sweep(reader, loaded.experiment.name, arguments.experiment.file)
                     : reader.resolve_run(arguments.from);
  TuneOptions options = tune_options_of(loaded.experiment);
  options.huge_pages = measured_huge_pages(reader, sweep.run_id);
  options.ll128 = measured_ll128(reader, sweep.run_id);
  options.own = arguments.own;
  if (arguments.between_runs) keep_measured_cells(loaded.plan, reader, sweep.run_id);
  sweep.plan = arguments.between_runs
                   ? make_run_plan(loaded.plan, options, arguments.any_environment)
                   : make_tune_plan(loaded.experiment, loaded.plan, options);
  sweep.tasks = load_samples(reader, sweep.plan, sweep.run_id);
  sweep.experiment = std::move(loaded.experiment);
  return sweep;
}

/// The part of a sweep that one backend has. Backends are judged apart: evaluations are counted
/// over all cells of one.
struct BackendPart {
  Backend backend{};
  std::vector<SampledTask> tasks;
  std::vector<std::size_t> place;  ///< of each task in the plan
  std::vector<ReplayScore> scores;
};

std::vector<BackendPart> parts_of(const StoredSweep& sweep) {
  std::vector<BackendPart> parts;
  for (const Backend backend : backends_of(sweep.plan)) {
    BackendPart part;
    part.backend = backend;
    for (std::size_t t = 0; t < sweep.tasks.size(); ++t) {
      if (sweep.tasks[t].search.task.key.task.backend != backend) continue;
      part.tasks.push_back(sweep.tasks[t]);
      part.place.push_back(t);
    }
    if (!part.tasks.empty()) parts.push_back(std::move(part));
  }
  return parts;
}

/// Fewest fresh launches that score.
constexpr std::size_t kFewestRounds = 3;

/// Measures what the searches chose. @returns the exit code
int confirm_replay(const TuneArguments& arguments, const Shared& shared, const StoredSweep& sweep,
                   const std::vector<BackendPart>& parts, const ReplayOptions& options,
                   Console& console) {
  const InterruptGuard guard;
  const RunInfo info = tune_run(arguments, sweep.experiment, shared, "tune=confirm");
  const ConfirmationRule rule{.launches = sweep.plan.options.confirm_launches};
  return measure_in_run(
      arguments, shared, info, sweep.experiment, sweep.plan, console,
      [&](LaunchEvaluator& evaluator) {
        Table table;
        for (const BackendPart& part : parts) {
          const auto best = oracles(part.tasks, options);
          const auto fresh =
              measure_choices(evaluator, part.place, best, part.scores, rule, console);
          if (fresh.front().again_us.size() < kFewestRounds) break;
          const auto confirmed = score_confirmed(part.tasks, best, part.scores, fresh, rule);
          append_part(table, confirmed_table(confirmed), part.backend);
        }
        print_table(table, shared);
        if (evaluator.interrupted_by() != 0) return 128 + evaluator.interrupted_by();
        return evaluator.failed_launches() == 0 ? exit_code::kFine : exit_code::kCellFailed;
      });
}

}  // namespace

int run_replay(const TuneArguments& arguments, const Shared& shared) {
  Console console(shared.verbosity());
  const StoredSweep sweep = load_sweep(arguments, shared.db);
  ReplayOptions options;
  options.agents = arguments.agents.empty() ? agent_names() : arguments.agents;
  options.seeds = arguments.seeds;
  options.agent = agent_options(arguments);
  if (arguments.confirm) options.parts = 2;
  options.best_fixed = arguments.between_runs && !arguments.confirm;
  console.note(fmt::format(
      "replaying sweep {}: {}, {}, {}", sweep.run_id, counted(sweep.tasks.size(), "task"),
      counted(sweep.plan.arm_count(), "setting"), counted(options.seeds, "seed")));
  Table table;
  std::vector<BackendPart> parts = parts_of(sweep);
  {
    ReplayLog log(sweep.plan, shared.db, sweep.run_id, options.agent);
    for (BackendPart& part : parts) {
      double settings = 0;
      for (const SampledTask& task : part.tasks)
        settings += static_cast<double>(task.arm_us.size());
      // What a live search of these cells would have.
      options.evaluations = std::max(1, static_cast<int>(sweep.plan.options.budget * settings));
      part.scores = replay(part.tasks, options, [&](ReplayStep step) {
        step.task = part.place[step.task];
        log.add(step);
      });
      log.flush();
      append_part(table, replay_table(part.scores), part.backend);
    }
  }
  print_table(table, shared);
  return arguments.confirm ? confirm_replay(arguments, shared, sweep, parts, options, console)
                           : exit_code::kFine;
}

}  // namespace dynamiccl
