#include <fmt/format.h>

#include <memory>

#include "core/vocabulary/usable_cores.hpp"
#include "orchestrator/cli/verbs/experiment_arguments.hpp"
#include "orchestrator/cli/verbs/plan_printer.hpp"
#include "orchestrator/cli/verbs/verbs.hpp"
#include "orchestrator/launch/identity.hpp"
#include "orchestrator/launch/machine.hpp"
#include "orchestrator/run/launch_folders.hpp"

namespace dynamiccl {
namespace {

int print_plan(const ExperimentArguments& arguments, const Shared& shared) {
  const auto loaded = load_experiment(arguments);
  LaunchSite site;
  site.worker_folder = program_folder();
  site.cores = usable_cores();
  site.cluster = loaded.cluster;
  site.run_folder = runs_folder(shared.db);
  if (shared.json) {
    // A path need not be UTF-8, JSON has to be.
    fmt::print("{}\n", plan_json(loaded.experiment, loaded.plan, site)
                           .dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("{}",
               plan_text(loaded.experiment, loaded.plan, site, stdout_columns(), shared.verbose));
  }
  return loaded.plan.possible_cells() > 0 ? exit_code::kFine : exit_code::kUsage;
}

}  // namespace

void add_plan_verb(CLI::App& app, Shared& shared) {
  auto* verb = app.add_subcommand(
      "plan", "say what `run` would do: groups, cells, impossible cells, commands, time");
  auto arguments = std::make_shared<ExperimentArguments>();
  arguments->add_to(*verb);
  add_db_option(*verb, shared);
  add_output_options(*verb, shared);
  verb->footer(
      "Examples:\n"
      "  dynamiccl plan experiments/quickstart.toml\n"
      "  dynamiccl plan experiments/quickstart.toml --only 'backend == gloo' --json\n"
      "  dynamiccl plan experiments/quickstart.toml -v               with the exact commands\n"
      "Exit codes: 0 something can run here, 2 nothing can, or wrong input.");
  verb->callback([arguments, &shared] { shared.exit_code = print_plan(*arguments, shared); });
}

}  // namespace dynamiccl
