#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>

#include "core/statistics/verdict.hpp"
#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/messages.hpp"
#include "core/vocabulary/others_files.hpp"
#include "core/vocabulary/result_place.hpp"
#include "core/vocabulary/text.hpp"
#include "db/reader.hpp"
#include "orchestrator/cli/verbs/tune_arguments.hpp"
#include "orchestrator/cli/verbs/unfinished_run.hpp"
#include "orchestrator/launch/identity.hpp"
#include "orchestrator/launch/interrupt.hpp"
#include "orchestrator/launch/machine.hpp"
#include "orchestrator/run/executor.hpp"
#include "orchestrator/run/held_folder.hpp"
#include "orchestrator/run/run_setup.hpp"
#include "orchestrator/tune/export_check.hpp"
#include "orchestrator/tune/measured_places.hpp"
#include "orchestrator/tune/run_plan.hpp"
#include "orchestrator/tune/samples.hpp"
#include "orchestrator/tune/tune_output.hpp"
#include "profiles/detect/facts.hpp"
#include "tuner/action/ll128.hpp"
#include "tuner/action/reach.hpp"
#include "tuner/agents/policy_agent.hpp"
#include "tuner/agents/policy_file.hpp"

namespace dynamiccl {
namespace {

/// What each mode of `tune` takes besides --db, --json, --quiet and --verbose.
struct Mode {
  std::string_view name, about, takes;
};

constexpr std::string_view kOfExperiments =
    "FILE TABLE --set --only --out --own --hosts --remote-shell --slurm --nodes --machine-file "
    "--profiles";
constexpr std::string_view kOfJobs = "FILE --out --machine-file --plugin";
/// Taken, and not in the help: `run --help` has them.
constexpr std::string_view kRare =
    "--hosts --remote-shell --slurm --nodes --machine-file --profiles --environments";

constexpr std::array kModes{
    Mode{"search", "search the settings of FILE's cells, confirm each choice, write a table",
         "--agent --evaluations --seed --policy --places --table --between-runs --environments"},
    Mode{"sweep", "measure every setting of every cell and store it", "--resume"},
    Mode{"replay", "let agents search a stored sweep, and compare them",
         "--agent --evaluations --seed --seeds --policy --confirm --from --between-runs "
         "--environments"},
    Mode{"apply", "measure a table's settings against the defaults on FILE's cells", "--apply"},
    Mode{"check",
         "measure which of a table's settings make a job faster; export writes those alone",
         "--check --check-seconds"},
    Mode{"job", "tune a command of your own: tune -- COMMAND",
         "--agent --call-agent --seed --policy --launches --pairs --budget --steps --warmup-steps "
         "--trial-seconds --learn-seconds --max-gpu-memory --max-cores --same-bits --parallelism "
         "--gloo-floor --whole"},
    Mode{"job --online", "start it once, to its own end, and learn per-call settings meanwhile",
         "--online --call-agent --seed --policy --learn-cost --parallelism --gloo-floor"},
    Mode{"job --recheck", "compare the settings in --out with the default again, on few launches",
         "--recheck --pairs --steps --warmup-steps --trial-seconds"}};

bool is_job(const Mode& mode) { return mode.name.starts_with("job"); }

bool has_word(std::string_view list, const std::string& word) {
  return fmt::format(" {} ", list).find(" " + word + " ") != std::string::npos;
}

bool takes(const Mode& mode, const CLI::Option& option) {
  const std::string name = option.get_name(option.get_positional());
  return has_word("--help --db --json --quiet --verbose", name) || has_word(mode.takes, name) ||
         has_word(is_job(mode) ? kOfJobs : kOfExperiments, name);
}

const Mode* mode_named(const std::string& name) {
  const auto* found = std::find_if(kModes.begin(), kModes.end(),
                                   [&](const Mode& mode) { return mode.name == name; });
  return found == kModes.end() ? nullptr : found;
}

int finish_apply(const TuningResult& result, const TunePlan& plan, const Shared& shared,
                 const Console& console) {
  print_tuning(plan, result, TuningKind::judged, shared);
  if (const std::string advice = applied_advice(result); !advice.empty()) console.note(advice);
  if (result.interrupted_by != 0) return 128 + result.interrupted_by;
  const bool slower =
      std::any_of(result.tasks.begin(), result.tasks.end(), [](const TunedTask& tuned) {
        return tuned.entry.evidence.verdict == name_of(Verdict::slower);
      });
  return slower ? exit_code::kRegression : exit_code::kFine;
}

/// A loaded experiment as tuning sees it.
struct Loaded {
  Experiment experiment;
  TunePlan plan;
  std::shared_ptr<ClusterSession> cluster;  ///< the ranks' machines; nullptr = this one
};

bool has_channels(const Plan& plan) {
  return std::any_of(plan.groups.begin(), plan.groups.end(), [](const PlannedGroup& group) {
    return backend_facts(group.backend).channels;
  });
}

Loaded planned(const TuneArguments& arguments, LoadedExperiment read) {
  TuneOptions options = tune_options_of(read.experiment);
  options.huge_pages = no_huge_pages_reason().empty();
  options.ll128 = has_channels(read.plan) && why_no_ll128(probe_facts()).empty();
  options.own = arguments.own;
  TunePlan plan =
      arguments.between_runs
          ? make_run_plan(read.plan, options, arguments.any_environment)
          : make_tune_plan(read.experiment, read.plan, options, may_be_simulated(arguments));
  return {std::move(read.experiment), std::move(plan), read.cluster};
}

Loaded load(const TuneArguments& arguments) {
  return planned(arguments, load_experiment(arguments.experiment));
}

std::string next_command(const TuneArguments& arguments, const Shared& shared,
                         const std::string& mode, std::vector<std::string> more) {
  // What shapes the plan: with other settings a sweep is another one.
  std::vector<std::string> shape;
  if (arguments.own) shape.emplace_back("--own");
  if (arguments.between_runs) shape.emplace_back("--between-runs");
  if (arguments.any_environment) shape.emplace_back("--environments");
  more.insert(more.begin(), shape.begin(), shape.end());
  return command_to_go_on("tune " + mode, arguments.experiment, more, shared);
}

RunInfo sweep_info(const TuneArguments& arguments, const Experiment& experiment,
                   const Shared& shared) {
  RunInfo info = tune_run(arguments, experiment, shared, kSweepMark);
  if (arguments.own) info.overrides.emplace_back(kOwnMark);
  return info;
}

std::optional<std::string> sweep_to_resume(const TuneArguments& arguments, const RunInfo& info,
                                           const Shared& shared) {
  if (!arguments.resume) return std::nullopt;
  make_db_folder(shared.db);
  auto unfinished = Store(shared.db).unfinished_run(info.spec_text, info.overrides);
  if (!unfinished)
    throw Error(ErrorKind::input,
                fmt::format("{}: nothing to resume: {} holds no unfinished sweep of this file with "
                            "the same --set, --only and --own{}; give what it was started with, "
                            "or start one without --resume",
                            arguments.experiment.file, shared.db,
                            unfinished_otherwise(shared.db, info, kSweepMark)));
  return unfinished;
}

int run_sweep(const TuneArguments& arguments, const Shared& shared) {
  auto read = load_experiment(arguments.experiment);
  const auto resumed =
      sweep_to_resume(arguments, sweep_info(arguments, read.experiment, shared), shared);
  Loaded loaded = planned(arguments, std::move(read));
  Console console(shared.verbosity());
  loaded.experiment.protocol.launches = loaded.plan.options.sweep_launches;
  const Plan plan = plan_for(loaded.plan, all_arms(loaded.plan), "");
  make_db_folder(shared.db);
  // Where its folder is refused no empty database is left.
  LaunchSite site = launch_site(shared.db, arguments.out);
  Store store(shared.db);
  const RunInfo info = sweep_info(arguments, loaded.experiment, shared);
  console.note(fmt::format("sweep {}: {}, {} in all, {} of {}", resumed.value_or(info.id),
                           counted(loaded.plan.tasks.size(), "task"),
                           counted(loaded.plan.arm_count(), "setting"),
                           counted(loaded.experiment.protocol.launches, "launch"),
                           counted(plan.groups.size(), "group")));
  site.cluster = loaded.cluster;
  site.machine = loaded.experiment.machine;
  Executor executor(loaded.experiment, plan, std::move(site), store, console);
  const auto summary = executor.run(info, resumed);
  if (shared.json)
    fmt::print("{}\n", nlohmann::json{{"run_id", summary.run_id},
                                      {"launches", summary.launches},
                                      {"failed_launches", summary.failed_launches},
                                      {"failed_cells", summary.failed_cells}}
                           .dump(1));
  else
    fmt::print("{}\n", summary.run_id);
  if (summary.interrupted_by != 0) return 128 + summary.interrupted_by;
  console.note("compare agents on it with\n  " +
               next_command(arguments, shared, "replay", {"--from", summary.run_id}));
  return summary.failed_launches == 0 ? exit_code::kFine : exit_code::kCellFailed;
}

ConfigurationTable configuration_of(const TuningResult& result, const LaunchEvaluator& evaluator,
                                    const TuneArguments& arguments, const RunInfo& info) {
  ConfigurationTable table;
  table.epoch = 1;
  table.provenance = {{"run", info.id},
                      {"experiment", info.name},
                      {"tool", info.tool_version},
                      {"agent", arguments.agent},
                      {"policy", policy_version(arguments.agent, agent_options(arguments))},
                      {"evaluations", result.evaluations},
                      {"settings", result.arms}};
  for (const auto& [id, regime] : evaluator.regimes())
    table.put_regime({id, regime.first, regime.second});
  for (const TunedTask& tuned : result.tasks)
    // A task whose default never ran has no regime: nothing is known of it.
    if (tuned.outcome.default_time) table.put(tuned.entry);
  return table;
}

/// Kept settings by who can load them: what only our own programs can is distinguished.
/// @returns how many a job can load
std::size_t say_kept(const TunePlan& plan, const TuningResult& result, const Console& console) {
  std::size_t loadable = 0;
  std::size_t own = 0;
  for (const TunedTask& tuned : result.tasks) {
    if (tuned.entry.is_default()) continue;
    const TaskKey& key = plan.tasks[tuned.task].search.task.key.task;
    ++(is_loadable(reach_of(key.backend, key.architecture, tuned.entry.setting)) ? loadable : own);
  }
  console.note(fmt::format("{} {} a setting that a job can load{}",
                           counted_of(loadable, result.tasks.size(), "cell"),
                           loadable == 1 ? "keeps" : "keep",
                           plan.options.own ? fmt::format("; apart from these, {} keep one that "
                                                          "only our own worker and trainer have",
                                                          own)
                                            : ""));
  return loadable;
}

int exit_of(const LaunchEvaluator& evaluator) {
  return evaluator.failed_launches() == 0 ? exit_code::kFine : exit_code::kCellFailed;
}

int finish_tuning(const TuningResult& result, const TunePlan& plan,
                  const LaunchEvaluator& evaluator, const TuneArguments& arguments,
                  const RunInfo& info, const Shared& shared, const Console& console) {
  print_tuning(plan, result, arguments.between_runs ? TuningKind::between_runs : TuningKind::search,
               shared);
  for (const std::string& advice : flag_advice(result)) console.note(advice);
  if (const std::string judged = judged_places(plan, result); !judged.empty()) console.note(judged);
  console.note(fmt::format("{} where all settings would need {}",
                           counted(result.evaluations, "evaluation"), result.arms));
  if (result.interrupted_by != 0) {
    const char* table = arguments.between_runs ? "" : ", and no table of settings is written";
    console.note(std::string("interrupted: what was measured is stored") + table);
    return 128 + result.interrupted_by;
  }
  if (arguments.between_runs) return exit_of(evaluator);
  const std::size_t kept = say_kept(plan, result, console);
  write_table(configuration_of(result, evaluator, arguments, info), arguments.table);
  console.note(
      kept == 0
          ? fmt::format("answers written to {}; nothing in it is to be exported", arguments.table)
          : fmt::format("settings written to {}; before you export them, load them once as "
                        "a job would, over all sizes:\n  {}",
                        arguments.table,
                        next_command(arguments, shared, "check", {arguments.table})));
  return exit_of(evaluator);
}

/// A search may take hours.
void require_table_place(const std::string& table) {
  require_no_strangers(table, "choose another place with --table");
  make_folder(std::filesystem::absolute(table).parent_path().string(),
              "choose another place with --table");
  require_place(table, "--table");
}

int run_live(const TuneArguments& arguments, const Shared& shared) {
  Loaded loaded = load(arguments);
  if (loaded.plan.simulated())
    refuse_what_simulations_lack(arguments);
  else if (arguments.apply.empty() && !arguments.between_runs)
    require_table_place(arguments.table);
  Console console(shared.verbosity());
  TuningOptions options;
  options.agent = arguments.agent;
  options.agent_options = agent_options(arguments);
  options.evaluations = arguments.evaluations;
  options.confirm_launches = loaded.plan.options.confirm_launches;
  make_agent(options.agent, options.agent_options);  // says what is wrong before anything starts
  std::optional<ConfigurationTable> table;
  if (!arguments.apply.empty()) table = read_table(arguments.apply);
  const RunInfo info = tune_run(arguments, loaded.experiment, shared,
                                arguments.between_runs ? "tune=between-runs"
                                : table                ? "tune=apply"
                                                       : "tune=live");
  const auto search = [&](LaunchEvaluator& evaluator) {
    if (arguments.between_runs) {
      options.experience = earlier_runs(Reader(shared.db), loaded.plan);
      console.note(
          fmt::format("{} measurements of earlier runs are known", options.experience.size()));
    }
    const std::size_t own = own_settings(loaded.plan);
    console.note(fmt::format("tune {}: {}, {} in all{}", info.id,
                             counted(loaded.plan.tasks.size(), "task"),
                             counted(loaded.plan.arm_count(), "setting"),
                             own > 0 ? fmt::format(", {} of which no job can load", own) : ""));
    if (!arguments.between_runs && !table && arguments.places != kNoPlaces)
      console.note(
          start_from_places(loaded.plan, loaded.experiment,
                            known_places(arguments.places == kShippedPlaces ? "" : arguments.places,
                                         Reader(shared.db))));
    DecisionLog log(shared.db);
    if (table)
      return finish_apply(
          apply_table(loaded.plan, evaluator, log, console, info.id, options, *table), loaded.plan,
          shared, console);
    const auto result = tune_live(loaded.plan, evaluator, log, console, info.id, options);
    if (loaded.plan.simulated())
      return finish_simulated(result, loaded.plan, loaded.experiment, shared, console);
    return finish_tuning(result, loaded.plan, evaluator, arguments, info, shared, console);
  };
  return measure_in_run(arguments, shared, info, loaded.experiment, loaded.plan, console, search);
}

/// `tune --check`: the table's files loaded as jobs load them.
int run_check(const TuneArguments& arguments, const Shared& shared) {
  Loaded loaded = load(arguments);
  Console console(shared.verbosity());
  ConfigurationTable table = read_table(arguments.check);
  require_place(arguments.check, "--check");
  CheckPlan check = make_check_plan(loaded.experiment, loaded.plan, table);
  const RunInfo info = tune_run(arguments, loaded.experiment, shared, "tune=check");
  return measure_in_run(
      arguments, shared, info, loaded.experiment, check.plan, console,
      [&](LaunchEvaluator& evaluator) {
        const auto before = table.checks;
        const CheckAnswer answer = check_export(
            check, [&](const std::vector<Ask>& asks) { return evaluator.measure(asks); },
            evaluator.run_folder(), table,
            {loaded.plan.options.confirm_launches, arguments.check_seconds}, console);
        print_table(answer.table, shared);
        if (table.checks != before || evaluator.interrupted_by() == 0) {
          ++table.epoch;
          write_table(table, arguments.check);
          console.note(
              fmt::format("what was measured is stored in {}, and `dynamiccl export` writes by it",
                          arguments.check));
        }
        for (const std::string& line : answer.summary) console.note(line);
        return evaluator.interrupted_by() != 0 ? 128 + evaluator.interrupted_by()
                                               : exit_of(evaluator);
      });
}

int run_tune(const TuneArguments& arguments, const Shared& shared) {
  if (arguments.between_runs && !arguments.replay &&
      (reads_policy(arguments.agent) || arguments.agent == kUntrainedPpo))
    throw Error(ErrorKind::input,
                "tune: --agent " + arguments.agent +
                    " sets calls of a library; which backend, architecture, schedule and "
                    "synchronisation run is not a policy's to choose: leave --agent out (bandit), "
                    "or name random, coordinate-descent or exhaustive");
  if (arguments.any_environment && !arguments.between_runs)
    throw Error(ErrorKind::input, "tune: --environments goes with --between-runs");
  if (arguments.confirm && arguments.between_runs)
    throw Error(ErrorKind::input, "tune replay: --confirm goes without --between-runs");
  if (arguments.replay) return run_replay(arguments, shared);
  const InterruptGuard guard;
  if (!arguments.check.empty()) return run_check(arguments, shared);
  return arguments.sweep ? run_sweep(arguments, shared) : run_live(arguments, shared);
}

void add_search_options(CLI::App& verb, TuneArguments& arguments) {
  verb.add_option("--agent", arguments.agents,
                  "who searches: " + join(searching_agents(), ", ") + " (" + kDefaultAgent +
                      "); several, or none for all, in a replay")
      ->delimiter(',');
  verb.add_option("--evaluations", arguments.evaluations,
                  "measurements of all cells together (the file's share of all settings)")
      ->check(CLI::PositiveNumber);
  verb.add_option("--seed", arguments.seed, "random seed of the agent (1)");
  verb.add_option("--policy", arguments.policy,
                  "policy file of the ppo agent (the one that comes along)");
  verb.add_option("--places", arguments.places,
                  "start from what other places measured: none, shipped or a file (none)");
  verb.add_option("--table", arguments.table, "file for the settings (results/tuned.json)");
}

constexpr const char* kExamples =
    "Examples:\n"
    "  dynamiccl tune search experiments/tune_smoke.toml             search, confirm, write a "
    "table\n"
    "  dynamiccl tune search experiments/tune_cpu.toml --agent bandit --evaluations 200\n"
    "  dynamiccl tune sweep experiments/tune_cpu.toml                every setting, for "
    "replays\n"
    "  dynamiccl tune replay experiments/tune_cpu.toml --agent ppo,bandit,coordinate-descent\n"
    "  dynamiccl tune replay experiments/tune_cpu.toml --confirm     their choices measured "
    "again\n"
    "  dynamiccl tune apply experiments/tune_cpu.toml results/tuned.json\n"
    "  dynamiccl tune check experiments/tune_cpu.toml results/tuned.json   then export it\n"
    "  dynamiccl tune search experiments/training_grid.toml --between-runs  backend, architecture "
    "and "
    "schedule\n"
    "  dynamiccl tune -- torchrun --nproc-per-node 2 train.py          your own job, unchanged\n"
    "  dynamiccl tune -- mpirun -n 2 ./job                             one of Open MPI or MPICH\n"
    "  dynamiccl tune --online -- torchrun --nproc-per-node 2 train.py  one run, accompanied\n"
    "Options of FILE as of `run`: --hosts, --remote-shell, --slurm, --nodes, --machine-file, "
    "--profiles.\n"
    "Exit codes: 0 fine, 1 a launch failed, 2 wrong input, 3 a setting of apply is slower than "
    "the\n"
    "default, or one of --recheck no faster, 5 --recheck could not tell or --online learnt "
    "nothing, "
    "130 Ctrl-C.";

/// --policy where no agent that was asked for reads one.
void require_that_policy_acts(const TuneArguments& arguments, bool command) {
  if (arguments.policy.empty() || arguments.recheck) return;
  // Who searches where nobody is named: the default of each way, all in a replay.
  std::vector<std::string> agents = arguments.agents;
  if (command) {
    if (arguments.online) agents.clear();
    agents.push_back(arguments.call_agent);
  } else if (agents.empty() && !arguments.between_runs) {
    agents = arguments.replay ? agent_names() : std::vector<std::string>{kDefaultAgent};
  }
  if (std::any_of(agents.begin(), agents.end(), reads_policy)) return;
  throw Error(ErrorKind::input,
              "tune: --policy does nothing here: ppo reads a policy, and was not asked for");
}

/// Options of another mode, with the modes that have them.
void require_that_all_act(const CLI::App& verb, const TuneArguments& arguments, const Mode& mode,
                          const Shared& shared) {
  for (const CLI::Option* option : verb.get_options()) {
    if (option->count() == 0 || takes(mode, *option)) continue;
    std::vector<std::string> owners;
    for (const Mode& other : kModes)
      if (takes(other, *option)) owners.push_back(fmt::format("`tune {}`", other.name));
    const std::string name = option->get_name(option->get_positional());
    throw Error(ErrorKind::input,
                fmt::format("tune {}: {} does nothing here: it is an option of {}{}", mode.name,
                            name, join(owners, " and "),
                            name == "--parallelism"
                                ? "; of a file's cells --set tune.parallelism=tp says it"
                                : ""));
  }
  require_that_policy_acts(arguments, !shared.command.empty());
  if (arguments.agents.size() > 1 && !arguments.replay)
    throw Error(ErrorKind::input, "tune: more than one --agent needs `tune replay`");
}

/// What `tune` was asked for: somebody's own job, or an experiment.
int tune_as_asked(const CLI::App& verb, TuneArguments& arguments, const Shared& shared) {
  const Mode& mode = *mode_named(shared.tune_mode);
  arguments.sweep = mode.name == "sweep";
  arguments.replay = mode.name == "replay";
  require_that_all_act(verb, arguments, mode, shared);
  if (!shared.old_spelling.empty())
    Console(shared.verbosity())
        .note(fmt::format("`{}` is spelled `tune {}` now; the old spelling works on",
                          shared.old_spelling, mode.name));
  // Before anything is looked at that takes longer.
  if (!arguments.policy.empty()) read_policy(arguments.policy);
  if (!shared.command.empty() && !is_job(mode))
    throw Error(ErrorKind::input, fmt::format("tune {}: it takes an experiment file, no command of "
                                              "your own: dynamiccl tune -- COMMAND",
                                              mode.name));
  if (is_job(mode)) return run_job_tuning(arguments, shared);
  const bool needs_table = mode.name == "apply" || mode.name == "check";
  if (needs_table && (arguments.apply + arguments.check).empty())
    throw Error(ErrorKind::input, fmt::format("tune {0} needs a table behind FILE: dynamiccl tune "
                                              "{0} FILE results/tuned.json",
                                              mode.name));
  if (arguments.experiment.file.empty())
    throw Error(ErrorKind::input,
                "tune needs an experiment file, or a command of yours behind --:\n"
                "  dynamiccl tune search experiments/tune_smoke.toml\n"
                "  dynamiccl tune -- torchrun --nproc-per-node 2 train.py");
  arguments.agent = !arguments.agents.empty() ? arguments.agents.front()
                    : arguments.between_runs  ? "bandit"
                                              : kDefaultAgent;
  return run_tune(arguments, shared);
}

bool is_shown(const Mode& mode, const CLI::Option& option) {
  if (has_word(kRare, option.get_name())) return false;
  // All modes that take a job's command share one help.
  return std::any_of(kModes.begin(), kModes.end(), [&](const Mode& other) {
    return (other.name == mode.name || (is_job(mode) && is_job(other))) && takes(other, option);
  });
}

/// A help of `tune` shows what its mode takes and is of everyday use.
void show_mode(CLI::App& verb, const Shared& shared) {
  const Mode* mode = mode_named(shared.tune_mode);
  if (mode != nullptr) verb.description(fmt::format("tune {}: {}", mode->name, mode->about));
  if (mode == nullptr || is_job(*mode)) verb.remove_option(verb.get_option("FILE"));
  for (CLI::Option* option : verb.get_options())
    if (mode == nullptr || !is_shown(*mode, *option)) option->group("");
}

/// What `tune --help` asks for.
constexpr const char* kModesAlone = "?";

std::string modes_text() {
  std::string text = "Modes, each with a --help of its own:\n";
  for (const Mode& mode : kModes)
    text += fmt::format("  dynamiccl tune {:<15}{}\n", mode.name, mode.about);
  return text;
}

/// Where the mode's word stands: the first word that is no option and no option's value, as in
/// `tune --db runs.sqlite job`; past the end where that is no mode.
std::size_t mode_word(const std::vector<std::string>& argv) {
  std::size_t at = 2;
  while (at < argv.size() && argv[at].starts_with("-")) {
    const bool alone = has_word("--json -q --quiet -v --verbose", argv[at]) ||
                       argv[at].find('=') != std::string::npos;
    at += alone ? 1 : 2;
  }
  return at < argv.size() && mode_named(argv[at]) != nullptr ? at : argv.size();
}

}  // namespace

void take_tune_mode(std::vector<std::string>& argv, Shared& shared) {
  if (argv.size() < 2 || argv[1] != "tune") return;
  const auto given = [&](const std::string& option) {
    return std::any_of(argv.begin() + 2, argv.end(), [&](const std::string& word) {
      return word == option || word.starts_with(option + "=");
    });
  };
  shared.tune_help = given("--help") || given("-h");
  std::string& mode = shared.tune_mode;
  if (const auto at = mode_word(argv); at < argv.size()) {
    mode = argv[at];
    argv.erase(argv.begin() + static_cast<std::ptrdiff_t>(at));
  } else if (!shared.command.empty() || given("--online") || given("--recheck")) {
    mode = "job";
  } else if (argv.size() == 3 && (argv[2] == "--help" || argv[2] == "-h")) {
    mode = kModesAlone;
  } else {
    mode = "search";
    shared.old_spelling = "tune FILE";
    for (const std::string old : {"sweep", "replay", "apply", "check"})
      if (given("--" + old)) {
        mode = old;
        shared.old_spelling = "tune --" + old;
      }
    // Of the others the value is what counts.
    for (const char* flag : {"--sweep", "--replay"})
      if (shared.old_spelling.ends_with(flag)) std::erase(argv, flag);
  }
  for (const char* way : {" --online", " --recheck"})
    if (mode == "job" && given(way + 1)) mode += way;
}

void add_tune_verb(CLI::App& app, Shared& shared) {
  auto* verb = app.add_subcommand(
      "tune", "search the settings of an experiment's cells, or of your own job: tune -- COMMAND");
  auto arguments = std::make_shared<TuneArguments>();
  arguments->experiment.add_to(*verb, false);
  add_search_options(*verb, *arguments);
  verb->add_flag("--own", arguments->own,
                 "also settings that no job can load: arguments of our own worker's and trainer's "
                 "calls");
  verb->add_flag("--between-runs", arguments->between_runs,
                 "choose backend, architecture and schedule of each workload (agent: bandit)");
  verb->add_flag("--environments", arguments->any_environment,
                 "with --between-runs: the environment is a choice, too, the file's first the "
                 "default");
  verb->add_flag("--resume", arguments->resume, "complete the newest unfinished sweep of FILE");
  verb->add_flag("--confirm", arguments->confirm,
                 "measure what the agents and the oracle chose on fresh launches");
  verb->add_option("--from", arguments->from, "the sweep to replay (the newest of FILE)");
  verb->add_option("--seeds", arguments->seeds, "searches per agent of a replay (10)")
      ->check(CLI::PositiveNumber);
  for (auto& [mode, table] : {std::pair<std::string, std::string*>{"apply", &arguments->apply},
                              {"check", &arguments->check}})
    if (shared.tune_mode == mode)
      verb->add_option("TABLE,--" + mode, *table, "settings file that a search wrote");
  verb->add_option("--check-seconds", arguments->check_seconds,
                   "fewer launches where a place (environment, library, ranks) would "
                   "take longer (360; 0: as many as confirm_launches says)")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--out", arguments->out,
                   "keep each launch's files in this folder; with a command: where its settings go "
                   "(results/job)");
  add_job_options(*verb, *arguments);
  add_db_option(*verb, shared);
  add_output_options(*verb, shared);
  if (shared.tune_help) show_mode(*verb, shared);
  verb->footer(mode_named(shared.tune_mode) == nullptr ? modes_text() + kExamples : kExamples);
  verb->callback(
      [verb, arguments, &shared] { shared.exit_code = tune_as_asked(*verb, *arguments, shared); });
}

}  // namespace dynamiccl
