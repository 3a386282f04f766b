#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "containers/start/environment.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/messages.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"
#include "db/reader.hpp"
#include "db/store.hpp"
#include "orchestrator/cli/verbs/experiment_arguments.hpp"
#include "orchestrator/cli/verbs/output_file.hpp"
#include "orchestrator/cli/verbs/started_as.hpp"
#include "orchestrator/cli/verbs/unfinished_run.hpp"
#include "orchestrator/cli/verbs/verbs.hpp"
#include "orchestrator/launch/interrupt.hpp"
#include "orchestrator/launch/noise_gate.hpp"
#include "orchestrator/run/console.hpp"
#include "orchestrator/run/executor.hpp"
#include "orchestrator/run/launch_folders.hpp"
#include "orchestrator/run/run_setup.hpp"
#include "orchestrator/run/stopping.hpp"
#include "reports/model/leaf_difference.hpp"
#include "reports/model/table_view.hpp"
#include "reports/page/html_report.hpp"
#include "reports/queries/query.hpp"
#include "reports/queries/registry.hpp"
#include "reports/render/answer.hpp"
#include "reports/render/render.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;

struct RunArguments {
  ExperimentArguments experiment;
  std::string out;
  bool resume = false;
  bool full = false;
  bool no_report = false;
  std::string wait_quiet;  ///< longest wait for a quiet machine, "" = none
};

RunInfo run_info(const RunArguments& arguments, const Experiment& experiment,
                 const Shared& shared) {
  auto info = new_run(experiment, fs::absolute(arguments.experiment.file).string(), shared.argv);
  // A plan with fewer cells is another plan: --resume must not mistake one for the other.
  if (!arguments.experiment.only.empty())
    info.overrides.push_back("only=" + arguments.experiment.only);
  return info;
}

/// What a run is known by that was begun in the Slurm job around this process, to be followed by
/// which start of the job it was; "" outside of any.
std::string job_key(const RunInfo& info) {
  const char* job = std::getenv("SLURM_JOB_ID");
  if (job == nullptr) return "";
  return fmt::format("job {}, experiment {}, start ", job,
                     stable_id(info.spec_text + join(info.overrides, "\n")));
}

/// How often Slurm has put the job around this process back into its queue.
int job_restarts() {
  const char* restarts = std::getenv("SLURM_RESTART_COUNT");
  return restarts != nullptr ? std::max(0, std::atoi(restarts)) : 0;
}

/// The run that this Slurm job had begun before Slurm put it back into its queue: the job's script
/// starts from its beginning again, but what is stored is not to be measured twice. A script that
/// measures the same several times comes to its runs in their order again.
std::optional<std::string> run_of_requeued_job(const std::string& job, const std::string& db) {
  if (job.empty() || job_restarts() < 1) return std::nullopt;
  const Table begun = Reader(db).query(
      "SELECT uuid, (SELECT count(*) FROM event WHERE kind = 'slurm-job' AND message = ?2) AS "
      "calls "
      "FROM run WHERE id IN (SELECT run_id FROM event WHERE kind = 'slurm-job' AND "
      "substr(message, 1, length(?1)) = ?1) ORDER BY id",
      {job, job + std::to_string(job_restarts())});
  const TableView runs(begun);
  if (runs.size() == 0) return std::nullopt;
  // Of the script since it was started again.
  const auto calls = static_cast<std::size_t>(runs.integer(0, "calls"));
  return calls < runs.size() ? std::optional(runs.text(calls, "uuid")) : std::nullopt;
}

std::optional<std::string> run_to_resume(const RunArguments& arguments, const RunInfo& info,
                                         const Store& store, const std::string& db) {
  if (!arguments.resume) return std::nullopt;
  auto unfinished = store.unfinished_run(info.spec_text, info.overrides);
  if (!unfinished)
    throw Error(
        ErrorKind::input,
        fmt::format("{}: nothing to resume: {} holds no unfinished run of this file with "
                    "the same --set and --only{}; give what it was started with, or start one "
                    "without --resume",
                    arguments.experiment.file, db, unfinished_otherwise(db, info, "")));
  return unfinished;
}

/// The command that resumes the run: it is found again by its file, --set and --only.
std::string resume_command(const RunArguments& arguments, const Shared& shared) {
  std::vector<std::string> more{"--resume"};
  if (!arguments.out.empty()) more.insert(more.begin(), {"--out", arguments.out});
  return command_to_go_on("run", arguments.experiment, more, shared);
}

/// Writes the run's page next to the database. @returns its path, "" where there is none
std::string write_page(const Reader& reader, const RunSummary& summary, const Shared& shared) {
  const fs::path page = fs::path(shared.db).parent_path() / (summary.run_id.substr(0, 8) + ".html");
  try {
    write_output(page.string(), render_report_html(reader, summary.run_id), "--no-report",
                 shared.db);
  } catch (const Error& error) {
    tell(fmt::format("the page was not written: {}\n", printable(error.what())));
    return "";
  }
  return page.string();
}

void print_answer(const RunSummary& summary, const RunArguments& arguments, const Shared& shared) {
  const Reader reader(shared.db);
  const std::string page = arguments.no_report ? "" : write_page(reader, summary, shared);
  if (!shared.json) {
    if (arguments.full)
      fmt::print("{}\n", printable(render_full_answer(reader, summary.run_id, stdout_columns())));
    fmt::print(
        "{}",
        coloured_for_stdout(printable(with_pasteable_commands(
            render_answer(reader, summary.run_id, page, stdout_columns()), shared.argv.front()))));
    return;
  }
  QueryScope scope;
  scope.runs = {summary.run_id};
  const auto rows = [&](const char* query) {
    if (summary.interrupted_by != 0) return nlohmann::json::array();
    return parsed_json(render_table(named_query(reader, query, scope), OutputFormat::json));
  };
  const nlohmann::json answer = {{"run_id", summary.run_id},
                                 {"db", shared.db},
                                 {"launches", summary.launches},
                                 {"failed_launches", summary.failed_launches},
                                 {"failed_cells", summary.failed_cells},
                                 {"interrupted_by", summary.interrupted_by},
                                 {"not_prepared", summary.not_prepared},
                                 {"latency", rows("latency")},
                                 {"coverage", rows("coverage")}};
  fmt::print("{}\n", answer.dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
}

/// Names of algorithms that nothing in the run has, each with what a library said of one: more
/// likely a slip of the pen than something unsupported.
std::vector<std::string> algorithms_of_nobody(const std::string& db, const std::string& run) {
  const Table table = Reader(db).query(
      "SELECT algorithm, max(reason) AS reason FROM v_cell WHERE run_id = ?1 GROUP BY algorithm "
      "HAVING sum(launches) = 0 AND sum(reason LIKE '%no algorithm \"%') = count(*)",
      {run});
  std::vector<std::string> reasons;
  const TableView rows(table);
  for (std::size_t i = 0; i < rows.size(); ++i) reasons.push_back(rows.text(i, "reason"));
  return reasons;
}

/// Where launches of the plan are missing: why, and the command that makes up for them.
void say_how_to_go_on(const RunSummary& summary, const std::string& command,
                      const Console& console) {
  if (summary.interrupted_by != 0)
    console.warning(
        fmt::format("interrupted: all that was measured is stored; continue with\n  {}", command));
  else if (!summary.not_prepared.empty())
    console.warning(
        fmt::format("{} did not come up (the reason stands above): fix it and continue with\n  {}",
                    join(summary.not_prepared, ", "), command));
  else if (summary.failed_launches > 0)
    console.warning(
        fmt::format("{} failed (query failures says why): fix the cause and try {} "
                    "again with\n  {}",
                    counted(summary.failed_launches, "launch"),
                    summary.failed_launches == 1 ? "it" : "them", command));
}

/// The whole run is to begin on a quiet machine; that it is not is no reason not to begin at last.
void wait_as_asked(const RunArguments& arguments, const Experiment& experiment, int cores,
                   const Console& console) {
  if (arguments.wait_quiet.empty()) return;
  const Micros most = parse_duration(arguments.wait_quiet);
  console.note(fmt::format("waiting for a quiet machine, {} at most", arguments.wait_quiet));
  const auto flags = wait_for_quiet(experiment.protocol.noise, cores, most);
  if (!flags.empty() && interrupt_signal() == 0)
    console.warning(fmt::format("the machine was not quiet within {}, and the run begins: {}",
                                arguments.wait_quiet, join(flags, "; ")));
}

int run_experiment(const RunArguments& arguments, const Shared& shared) {
  const InterruptGuard guard;
  Console console(shared.verbosity());
  for (const auto& line : clean_leftovers())
    console.note("removed what a killed run had left: " + line);
  const auto loaded = load_experiment(arguments.experiment);
  make_db_folder(shared.db);
  // Where its folder is refused no empty database is left.
  LaunchSite site = launch_site(shared.db, arguments.out);
  Store store(shared.db);
  for (const auto& folder : remove_rowless_folders(Reader(shared.db), site.run_folder))
    console.note("removed a launch's folder that a killed run had left: " + folder);
  const auto info = run_info(arguments, loaded.experiment, shared);
  const std::string job = job_key(info);
  auto resumed = run_of_requeued_job(job, shared.db);
  if (resumed)
    console.note(fmt::format("Slurm has started job {} again: run {} goes on",
                             std::getenv("SLURM_JOB_ID"), *resumed));
  else
    resumed = run_to_resume(arguments, info, store, shared.db);
  console.note(fmt::format("{} {}: {}, {} to measure of {}, each {}", resumed ? "resuming" : "run",
                           resumed.value_or(info.id), counted(loaded.plan.groups.size(), "group"),
                           counted(loaded.plan.possible_cells(), "cell"), loaded.plan.cell_count(),
                           launches_text(loaded.experiment.protocol)));
  site.cluster = loaded.cluster;
  site.machine = loaded.experiment.machine;
  wait_as_asked(arguments, loaded.experiment, site.cores, console);
  Executor executor(loaded.experiment, loaded.plan, std::move(site), store, console);
  if (!job.empty()) executor.begins_in(job + std::to_string(job_restarts()));
  if (shared.verbosity() != Verbosity::quiet)
    executor.after_first_launches([&](const std::string& run) {
      console.note(render_first_answer(Reader(shared.db), run, Executor::kFirstLook,
                                       most_launches(loaded.experiment.protocol),
                                       stdout_columns()));
    });
  const auto summary = executor.run(info, resumed);
  // Who ends a large run does not wait for its figures.
  if (summary.interrupted_by == 0 || shared.json) print_answer(summary, arguments, shared);
  say_how_to_go_on(summary, resume_command(arguments, shared), console);
  if (summary.interrupted_by != 0) return 128 + summary.interrupted_by;
  const auto nobody = algorithms_of_nobody(shared.db, summary.run_id);
  for (const auto& reason : nobody) console.warning("nothing was measured: " + reason);
  return summary.ok() && nobody.empty() ? exit_code::kFine : exit_code::kCellFailed;
}

}  // namespace

void add_run_verb(CLI::App& app, Shared& shared) {
  auto* verb = app.add_subcommand("run", "measure an experiment, store it, print the answer");
  auto arguments = std::make_shared<RunArguments>();
  arguments->experiment.add_to(*verb);
  verb->add_flag("--resume", arguments->resume,
                 "complete the newest unfinished run of FILE without repeating what is stored");
  verb->add_option("--out", arguments->out,
                   "keep each launch's run.json and records in this folder");
  verb->add_flag("--full", arguments->full, "every table before the answer");
  verb->add_option("--wait-quiet", arguments->wait_quiet,
                   "begin when the machine is quiet by protocol.noise, after this time at the "
                   "latest: 10m")
      ->check([](const std::string& text) -> std::string {
        try {
          return parse_duration(text).count() > 0 ? "" : "longer than nothing, as in 10m";
        } catch (const Error& error) {
          return error.what();
        }
      });
  verb->add_flag("--no-report", arguments->no_report,
                 "leave out the page that is written next to the database");
  add_db_option(*verb, shared);
  add_output_options(*verb, shared);
  verb->footer(
      "Examples:\n"
      "  dynamiccl run experiments/quickstart.toml\n"
      "  dynamiccl run experiments/quickstart.toml --only 'environment == bare-metal'\n"
      "  dynamiccl run experiments/quickstart.toml --set protocol.launches=10 --db other.sqlite\n"
      "  dynamiccl run experiments/quickstart.toml --set protocol.target_interval=0.05 \\\n"
      "                --set protocol.time_budget=10m\n"
      "  dynamiccl run experiments/quickstart.toml --resume\n"
      "Exit codes: 0 all cells fine, 1 a launch or cell failed, 2 wrong input, 130 Ctrl-C.");
  verb->callback([arguments, &shared] { shared.exit_code = run_experiment(*arguments, shared); });
}

}  // namespace dynamiccl
