#include "orchestrator/cli/verbs/tune_arguments.hpp"

#include <fmt/format.h>

#include <filesystem>

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
