#include "orchestrator/cli/verbs/tune_arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/messages.hpp"
#include "orchestrator/launch/machine.hpp"
#include "orchestrator/run/console.hpp"
#include "orchestrator/run/executor.hpp"
#include "orchestrator/run/held_folder.hpp"
#include "orchestrator/run/run_setup.hpp"
#include "reports/render/render.hpp"
#include "tuner/agents/policy_file.hpp"

namespace dynamiccl {
AgentOptions agent_options(const TuneArguments& arguments) {
  AgentOptions options;
  options.seed = arguments.seed;
  options.policy_path = arguments.policy;
  if (options.policy_path.empty()) options.policy_path = shipped_policy();
  return options;
}

void print_table(const Table& table, const Shared& shared) {
  fmt::print("{}", render_table(table, shared.json ? OutputFormat::json : OutputFormat::text, {},
                                stdout_columns()));
}

void print_tuning(const TunePlan& plan, const TuningResult& result, TuningKind kind,
                  const Shared& shared) {
  if (shared.json)
    print_table(tuning_table(plan, result), shared);
  else
    fmt::print("{}", printable(tuning_text(plan, result, kind, stdout_columns())));
}

bool may_be_simulated(const TuneArguments& arguments) {
  return !arguments.sweep && !arguments.replay && !arguments.between_runs &&
         arguments.apply.empty() && arguments.check.empty();
}

void refuse_what_simulations_lack(const TuneArguments& arguments) {
  if (arguments.table != TuneArguments().table)
    throw Error(ErrorKind::input,
                "tune search: --table: what is chosen for a simulated machine is for no job to "
                "load, and no file is written; leave --table out");
  if (arguments.places != kNoPlaces)
    throw Error(ErrorKind::input,
                "tune search: --places: what was measured elsewhere says nothing of SMPI's "
                "algorithms, of which the machine's models expect something; leave --places out");
}

int finish_simulated(const TuningResult& result, const TunePlan& plan, const Experiment& experiment,
                     const Shared& shared, const Console& console) {
  print_tuning(plan, result, TuningKind::simulated, shared);
  std::set<std::string> environments;
  for (const TuneTask& task : plan.tasks) environments.insert(task.environment);
  for (const std::string& name : environments)
    console.note(fmt::format("{}: {}", name, experiment.profiles.at(name).description));
  const auto faster =
      std::count_if(result.tasks.begin(), result.tasks.end(),
                    [](const TunedTask& tuned) { return !tuned.entry.is_default(); });
  console.note(
      fmt::format("{} where all settings would need {}; {} {} another algorithm; no file "
                  "is written, as no job runs there",
                  counted(result.evaluations, "evaluation"), result.arms,
                  counted_of(static_cast<std::size_t>(faster), result.tasks.size(), "cell"),
                  faster == 1 ? "has" : "have"));
  if (result.interrupted_by != 0) return 128 + result.interrupted_by;
  const bool simulated =
      std::any_of(result.tasks.begin(), result.tasks.end(),
                  [](const TunedTask& tuned) { return tuned.outcome.default_time.has_value(); });
  return simulated ? exit_code::kFine : exit_code::kCellFailed;
}

RunInfo tune_run(const TuneArguments& arguments, const Experiment& experiment, const Shared& shared,
                 const std::string& mark) {
  auto info = new_run(experiment, std::filesystem::absolute(arguments.experiment.file).string(),
                      shared.argv);
  if (!arguments.experiment.only.empty())
    info.overrides.push_back("only=" + arguments.experiment.only);
  info.overrides.push_back(mark);
  return info;
}

int measure_in_run(const TuneArguments& arguments, const Shared& shared, const RunInfo& info,
                   const Experiment& experiment, const TunePlan& plan, Console& console,
                   const std::function<int(LaunchEvaluator&)>& body) {
  for (const auto& line : clean_leftovers())
    console.note("removed what a killed run had left: " + line);
  make_db_folder(shared.db);
  // Where its folder is refused no empty database is left.
  LaunchSite site = launch_site(shared.db, arguments.out);
  Store store(shared.db);
  site.cluster = cluster_session(experiment);
  site.machine = experiment.machine;
  site.run_folder += "/" + info.id;
  make_folder(site.run_folder, "choose another place with --out");
  store.begin_run(info, {}, {});
  int code = exit_code::kCellFailed;
  try {
    LaunchEvaluator evaluator(experiment, plan, site, store, console, info.id);
    code = body(evaluator);
    store.end_run(info.id, evaluator.interrupted_by() == 0 ? "complete" : "interrupted");
  } catch (...) {
    store.end_run(info.id, "failed");
    throw;
  }
  std::error_code ignored;
  std::filesystem::remove(site.run_folder, ignored);
  return code;
}

}  // namespace dynamiccl
