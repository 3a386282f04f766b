#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

#include "containers/command.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/file_descriptor.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/messages.hpp"
#include "core/vocabulary/others_files.hpp"
#include "core/vocabulary/text.hpp"
#include "db/store.hpp"
#include "orchestrator/cli/verbs/output_file.hpp"
#include "orchestrator/cli/verbs/started_as.hpp"
#include "orchestrator/cli/verbs/tune_arguments.hpp"
#include "orchestrator/launch/identity.hpp"
#include "orchestrator/launch/interrupt.hpp"
#include "orchestrator/run/run_setup.hpp"
#include "orchestrator/run/stored_decisions.hpp"
#include "orchestrator/tune/job/job_files.hpp"
#include "orchestrator/tune/job/job_tuning.hpp"
#include "orchestrator/tune/job/library_watch.hpp"
#include "orchestrator/tune/job/stored_floor.hpp"
#include "orchestrator/tune/tuning.hpp"
#include "profiles/detect/facts.hpp"
#include "profiles/detect/probes/environment_probe.hpp"
#include "profiles/machine_declarations.hpp"
#include "profiles/strict_toml.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string quoted_command(const std::vector<std::string>& argv) {
  std::vector<std::string> words;
  for (const std::string& word : argv) words.push_back(shell_quote(word));
  return join(words, " ");
}

/// As a shell takes it: quotes around the whole would make a command's name of it.
std::string quoted_assignment(const std::string& assignment) {
  const auto equals = assignment.find('=');
  return assignment.substr(0, equals + 1) + shell_quote(assignment.substr(equals + 1));
}

std::string plugin_of(const TuneArguments& arguments) {
  const std::string path = arguments.plugin.empty()
                               ? program_folder() + "/libdynamiccl-nccl-plugin.so"
                               : fs::absolute(arguments.plugin).string();
  if (!fs::exists(path))
    throw Error(ErrorKind::input,
                why_part_is_absent(path, "build the target dynamiccl-nccl-plugin") +
                    "; another one is named with --plugin");
  if (!fs::is_regular_file(path))
    throw Error(ErrorKind::input, path + ": is no file that NCCL could load; name the plugin, " +
                                      "libdynamiccl-nccl-plugin.so, with --plugin");
  require_one_line("--plugin", path);
  return path;
}

/// A ratio of fewer has no interval: no look at them could end the search.
constexpr int kFewestPairs = 3;

JobTuningOptions tuning_options(const TuneArguments& arguments) {
  JobTuningOptions options;
  options.agent = arguments.agents.empty() ? "bandit" : arguments.agents.front();
  options.call_agent = arguments.call_agent;
  options.agent_options = agent_options(arguments);
  // What cannot be made is refused before the job is started and a run is stored.
  for (const std::string& agent : {options.agent, options.call_agent})
    if (agent != "none") static_cast<void>(make_agent(agent, options.agent_options));
  options.launches = arguments.launches;
  if (arguments.pairs || arguments.recheck)
    options.confirmation = {std::max(kFewestPairs, arguments.pairs.value_or(kFewestPairs)), 3,
                            0.982, options.confirmation.band};
  options.trial_seconds = arguments.trial_seconds;
  options.steps = arguments.steps;
  options.warmup = arguments.warmup;
  options.learn_seconds = arguments.learn_seconds;
  options.learn_cost = arguments.learn_cost / 100;
  if (!arguments.budget.empty()) {
    options.budget_s = parse_duration(arguments.budget).count() / 1e6;
    if (!(options.budget_s > 0))
      throw Error(ErrorKind::input, "tune: --budget " + arguments.budget +
                                        " leaves no time to start the command in: 5m, 2h");
  }
  if (!arguments.most_gpu_memory.empty())
    options.constraints.gpu_memory_mib =
        static_cast<double>(parse_bytes(arguments.most_gpu_memory).count()) / (1 << 20);
  if (arguments.most_cores > 0) options.constraints.host_cores = arguments.most_cores;
  options.constraints.same_bits = arguments.same_bits;
  options.whole = arguments.whole;
  if (!arguments.parallelism.empty())
    options.parallelism = parse_named<ParallelismMode>(arguments.parallelism);
  return options;
}

/// A job's run in the database: its command is its experiment.
RunInfo job_run(const Shared& shared, const JobTuningOptions& options, const char* mark) {
  RunInfo info;
  info.id = random_uuid();
  info.name = "job";
  const std::vector<std::string> command = recorded_command(shared.command);
  info.spec_path = "";
  info.spec_text =
      "# Somebody's own command, started by `dynamiccl tune`.\n" + quoted_command(command) + "\n";
  info.overrides = {std::string("tune=") + mark};
  info.seed = options.agent_options.seed;
  info.argv = recorded_command(shared.argv);
  info.tool_version = fmt::format("dynamiccl {}, {}", tool_version(), build_description());
  info.host_json = probe_host().dump();
  info.protocol_json = json{{"launches", options.confirmation.launches},
                            {"steps", options.steps},
                            {"warmup", options.warmup},
                            {"rank_aggregation", "the step of the rank that is listened to"}}
                           .dump();
  return info;
}

/// Decisions of one run, under a row per author.
class JobLog {
 public:
  JobLog(const std::string& db, std::string run, const JobTuningOptions& options)
      : log_(db), run_(std::move(run)), options_(options) {}
  void add(const DecisionAuthor& author, const std::vector<DecisionInfo>& rows) {
    const std::string key = author.agent + author.policy_version;
    if (!tunings_.contains(key))
      tunings_[key] = log_.begin({run_, "job", author.agent, author.policy_version, author.seed,
                                  options_json(author.agent, options_.agent_options).dump()});
    log_.add(tunings_.at(key), rows);
  }
  [[nodiscard]] bool empty() const { return tunings_.empty(); }

 private:
  DecisionLog log_;
  std::string run_;
  const JobTuningOptions& options_;
  std::map<std::string, std::int64_t> tunings_;
};

/// Why no pair of launches could be compared.
std::string failed_text(const JobTuningResult& result) {
  return fmt::format("{} of the {} of its pairs failed ({})", result.failed_confirmations,
                     counted(result.confirm_launches, "launch"), result.failure);
}

/// What stays where nothing is kept.
std::string default_of(const JobTuningResult& result) {
  return library_title(result.facts.library) + "'s default";
}

json result_json(const JobTuningResult& result, const std::string& run, const std::string& use) {
  json object{{"run_id", run},
              {"regime", result.facts.regime.name},
              {"library", name_of(result.facts.library)},
              {"nccl", result.facts.nccl()},
              {"judged_by", result.observed.whole ? "whole command" : "step"},
              {"settings", result.settings},
              {"search_launches", result.search_launches},
              {"confirm_launches", result.confirm_launches},
              {"failed_launches", result.failed_launches},
              {"pairs", result.pairs},
              {"interrupted", result.interrupted_by != 0},
              {"observed_step_us", result.observed.step.count()},
              {"calls_per_step", result.observed.calls_per_step},
              {"setting", result.arm},
              {"verdict", result.compared() ? json(name_of(result.verdict)) : json()},
              {"kept", result.kept()},
              {"use", use}};
  if (const auto preload = preload_of(result.choice); result.kept() && !preload.empty())
    object["preload"] = preload;
  if (result.unjudged()) object["failure"] = failed_text(result);
  if (result.default_us && result.chosen_us) {
    object["default_step_us"] = *result.default_us;
    object["chosen_step_us"] = *result.chosen_us;
  }
  if (result.ratio) {
    object["ratio"] = result.ratio->value;
    if (result.ratio->interval) {
      object["ratio_low"] = result.ratio->interval->low;
      object["ratio_high"] = result.ratio->interval->high;
    }
  }
  return object;
}

/// What Gloo took, by the database and a table that was handed over.
std::shared_ptr<const GlooTimes> known_gloo_times(const std::string& db, const std::string& table) {
  GlooTimes times = stored_gloo_times(Reader(db));
  if (!table.empty()) {
    const GlooTimes told = gloo_times(read_table(table));
    if (told.rows.empty())
      throw Error(
          ErrorKind::input,
          table +
              ": no row of it says what Gloo took; `dynamiccl tune search FILE` writes such "
              "rows where FILE lists gloo");
    times.add(told);
  }
  return std::make_shared<const GlooTimes>(std::move(times));
}

std::string ratio_text(const JobTuningResult& result) {
  if (!result.ratio || !result.default_us || !result.chosen_us) return "";
  const auto& interval = result.ratio->interval;
  return fmt::format(
      "{:.4g} ms -> {:.4g} ms{}, x {:.3f}{}", *result.default_us / 1e3, *result.chosen_us / 1e3,
      result.choice.whole || result.observed.whole ? " in all" : " a step", result.ratio->value,
      interval ? fmt::format(" [{:.3f}, {:.3f}]", interval->low, interval->high) : "");
}

std::string where_choices_are(const std::string& run, const Shared& shared) {
  return fmt::format("every choice:\n  {}",
                     command_line({started_as(shared.argv.front()), "query", "decisions", "--run",
                                   run.substr(0, 8), "--db", shared.db}));
}

/// What is known when a search is cut off: nothing of it is kept.
std::string interrupted_text(const JobTuningResult& result, const std::string& run,
                             const Shared& shared) {
  std::string text = "interrupted, so nothing is kept";
  if (result.ratio)
    text += fmt::format("; {}: {} in the {} that ended", result.arm, ratio_text(result),
                        counted(result.pairs, "pair"));
  else if (result.compared())
    text += fmt::format("; best so far, not confirmed: {}", result.arm);
  return text + "; " + where_choices_are(run, shared);
}

/// The job with what was found, as a shell takes it.
std::string start_line(const JobTuningResult& result, const std::string& use,
                       const Shared& shared) {
  const std::string command = quoted_command(shared.command);
  if (result.facts.library != Backend::nccl) return fmt::format("({} exec {})", use, command);
  return fmt::format("{} {}{}", quoted_assignment(use), preload_words(result.choice), command);
}

void print_result(const JobTuningResult& result, const std::string& run, const std::string& use,
                  const Shared& shared) {
  if (shared.json) {
    fmt::print("{}\n", result_json(result, run, use).dump(1));
    return;
  }
  if (result.out_of_time && !result.ratio) {
    fmt::print(
        "UNCLEAR: {}: too few of its pairs had ended when the budget was used up; nothing is "
        "kept: {} stays\n",
        result.arm, default_of(result));
    return;
  }
  if (result.unjudged()) {
    fmt::print("UNCLEAR: {}: {}; nothing is kept: {} stays\n", result.arm, failed_text(result),
               default_of(result));
    return;
  }
  if (!result.compared())
    fmt::print("nothing that was tried made the {} faster: {} stays\n",
               result.observed.whole ? "command" : "step", default_of(result));
  else
    fmt::print("{}: {} ({} against {} on {} of fresh launches in turn)\n", name_of(result.verdict),
               result.arm, ratio_text(result), default_of(result), counted(result.pairs, "pair"));
  if (result.kept())
    fmt::print("start the job with\n  {}\n", start_line(result, use, shared));
  else if (result.compared())
    fmt::print("it is not surely faster, so nothing is kept: {} stays\n", default_of(result));
}

/// What the job loads stands there: a plugin's path among it.
HeldFolder out_folder(const TuneArguments& arguments) {
  const std::string wanted = arguments.out.empty() ? "results/job" : arguments.out;
  require_one_line("--out", wanted);
  HeldFolder out(wanted, "choose another place with --out");
  require_no_exchange(out, "choose another place with --out");
  return out;
}

/// What stands in the environment outranks the file that launches read: with any of these the ranks
/// would load another plugin, or tell of their calls elsewhere.
void require_free_names(const JobCommand& command) {
  std::vector<std::string> taken;
  for (const char* name : {"NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN", "DYNAMICCL_TUNER_FOLDER",
                           "DYNAMICCL_TUNER_TABLE", "DYNAMICCL_PROFILE_EVENTS"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0' && value != command.plugin) taken.emplace_back(name);
  }
  if (!taken.empty())
    throw Error(
        ErrorKind::input,
        fmt::format("{} {} set here, and NCCL would take that instead of what the launches "
                    "are given: start it with\n  env -u {} dynamiccl tune ...",
                    join(taken, ", "), taken.size() == 1 ? "is" : "are", join(taken, " -u ")));
}

/// What nothing can be learnt of is refused before it is started.
void require_watchable(const JobCommand& command) {
  if (const std::string why = why_unwatchable(command.argv); !why.empty())
    throw Error(ErrorKind::input, why);
}

/// What of the user's own file does not hold in the launches.
void say_left_out(const JobCommand& command, bool online, const Console& console) {
  if (users_conf_is_tuned() && !online)
    console.note(users_conf_path() +
                 " was written by an earlier `tune`: its settings are left out of the launches, "
                 "what you had set before stays");
  std::istringstream lines(users_conf(online));
  for (std::string line; std::getline(lines, line);)
    for (const std::string name : {"NCCL_TUNER_PLUGIN=", "NCCL_PROFILER_PLUGIN="})
      if (line.starts_with(name) && line.substr(name.size()) != command.plugin)
        console.note(line + " of " + users_conf_path() +
                     " is not loaded in the launches: NCCL has one plugin of a kind, and they need "
                     "ours");
}

/// One search at a time writes a folder: launches read their settings there.
/// @returns what keeps others out until it is closed
FileDescriptor lock_folder(const HeldFolder& folder) {
  FileDescriptor lock(openat(folder.descriptor(), "lock",
                             O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  // Who may open it may hold it.
  if (lock.valid()) static_cast<void>(fchmod(lock.get(), 0600));
  // A file system without locks keeps nobody out.
  if (lock.valid() && flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw Error(ErrorKind::input,
                folder.path() +
                    ": another `dynamiccl tune -- COMMAND` is running with this folder; wait for "
                    "its end, or choose another place with --out");
  return lock;
}

/// How often the command is going to be started.
std::string starts_text(const JobTuningOptions& options, bool recheck) {
  const int confirming = 2 * options.confirmation.launches;
  if (recheck)
    return fmt::format("{} ({} at most)", counted(confirming, "time"),
                       confirming * kLooksOfRecheck);
  return fmt::format("up to {} to search and {} to confirm ({} at most)",
                     counted(options.launches, "time"), counted(confirming, "time"),
                     options.launches + confirming * options.confirmation.looks);
}

/// Says what is going to happen before it does.
void announce(const JobTuningOptions& options, const JobCommand& command, bool recheck,
              const Console& console) {
  console.note(fmt::format(
      "the command will be started {}, each time until {} seen and for {:.0f} s at most:\n  {}",
      starts_text(options, recheck),
      options.warmup + options.steps == 1
          ? "one step was"
          : fmt::format("{} steps were", options.warmup + options.steps),
      options.trial_seconds, quoted_command(command.argv)));
  if (const std::string flags = goes_elsewhere(command); !flags.empty())
    console.note("it starts its ranks elsewhere: " + flags);
}

int finish_search(const JobTuningResult& result, const TuneArguments& arguments,
                  const HeldFolder& out, const std::string& plugin, const RunInfo& info,
                  const Shared& shared, const Console& console) {
  for (const std::string& note : result.notes) console.note(note);
  if (result.interrupted_by != 0 && !result.kept()) {
    if (shared.json) fmt::print("{}\n", result_json(result, info.id, "").dump(1));
    console.note(interrupted_text(result, info.id, shared));
    return 128 + result.interrupted_by;
  }
  std::string use;
  if (result.kept())
    use = write_choice(out, result, plugin,
                       {{"run", info.id},
                        {"tool", info.tool_version},
                        {"command", recorded_command(shared.command)},
                        {"agent", arguments.agents.empty() ? "bandit" : arguments.agents.front()},
                        {"call_agent", arguments.call_agent},
                        {"launches", result.search_launches + result.confirm_launches},
                        {"pairs", result.pairs}});
  print_result(result, info.id, use, shared);
  console.note(fmt::format("{} to search among {}, {} to confirm; {}",
                           counted(result.search_launches, "launch"),
                           counted(result.settings, "setting"), result.confirm_launches,
                           where_choices_are(info.id, shared)));
  if (result.out_of_time)
    console.note("the budget is used up: the pairs that had ended by then decide");
  if (result.interrupted_by != 0) {
    console.note("interrupted while more pairs were measured; those that had ended are enough");
    return 128 + result.interrupted_by;
  }
  return result.unjudged() ? exit_code::kCellFailed : exit_code::kFine;
}

int finish_recheck(const JobTuningResult& result, const StoredChoice& stored, const RunInfo& info,
                   const Shared& shared, const Console& console) {
  if (result.interrupted_by != 0 && !result.kept()) {
    if (shared.json) fmt::print("{}\n", result_json(result, info.id, "").dump(1));
    console.note(result.ratio ? fmt::format("interrupted; {} in the {} that ended, which is too "
                                            "little to tell whether the stored settings hold",
                                            ratio_text(result), counted(result.pairs, "pair"))
                              : "interrupted before two pairs had ended: nothing is known");
    return 128 + result.interrupted_by;
  }
  // A file that the user may have from anywhere.
  const auto told = [&](const char* name) {
    const json& of = stored.provenance;
    const json text = of.is_object() ? of.value(name, json()) : json();
    return text.is_string() && !text.get<std::string>().empty() ? text.get<std::string>()
                                                                : std::string("unknown");
  };
  const auto& rows = stored.choice.entries;
  const Backend library = rows.empty() ? Backend::nccl : rows.front().key.task.backend;
  console.note(library == Backend::nccl
                   ? fmt::format("stored with NCCL {}, driver {}", told("nccl"), told("driver"))
                   : fmt::format("stored with {} {}", library_title(library), told("library")));
  if (shared.json)
    fmt::print("{}\n", result_json(result, info.id, "").dump(1));
  else if (result.unjudged())
    fmt::print("UNCLEAR: whether the stored settings hold is not known: {}\n", failed_text(result));
  else
    fmt::print("{}: {} ({}, {})\n", name_of(result.verdict),
               result.verdict == Verdict::faster ? "the stored settings still hold"
                                                 : "the stored settings are not surely faster now; "
                                                   "tune the job again",
               ratio_text(result), counted(result.pairs, "pair"));
  if (result.interrupted_by != 0) return 128 + result.interrupted_by;
  switch (result.verdict) {
    case Verdict::faster:
      return exit_code::kFine;
    case Verdict::unclear:
      return exit_code::kUnclear;
    default:
      return exit_code::kRegression;
  }
}

/// What the search is given of the job, and leaves out.
void add_constraint_options(CLI::App& verb, TuneArguments& arguments) {
  verb.add_option("--max-gpu-memory", arguments.most_gpu_memory,
                  "memory of a GPU that settings may take more than the default: 128MiB");
  verb.add_option("--max-cores", arguments.most_cores,
                  "cores of a host that helper threads may fill")
      ->check(CLI::PositiveNumber);
  verb.add_flag("--same-bits", arguments.same_bits,
                "sums keep their order: results stay the same bit by bit");
  add_choice_option(verb, "--parallelism", arguments.parallelism, all_names<ParallelismMode>(),
                    "how the job is spread over its ranks, which its calls do not show, for ppo");
}

}  // namespace

void add_job_options(CLI::App& verb, TuneArguments& arguments) {
  std::vector<std::string> agents = searching_agents();
  // Nobody learns then: with the library's default still looked at, and not.
  agents.insert(agents.end(), {"default", "none"});
  add_choice_option(
      verb, "--call-agent", arguments.call_agent, agents,
      "who chooses per call inside the launches (" + std::string(kDefaultAgent) + ")");
  verb.add_option("--launches", arguments.launches, "launches to search with (11)")
      ->check(CLI::Range(2, 1000));
  verb.add_option(
          "--pairs", arguments.pairs,
          "pairs of launches before the confirmation looks, up to three times, of --recheck "
          "twice (3, then up to six times, of --recheck twice; 2 are held as 3)")
      ->check(CLI::Range(2, 1000));
  verb.add_option("--budget", arguments.budget,
                  "time that search and pairs may take, half of it to search: 5m, 2h; what is "
                  "surely faster by then is kept");
  verb.add_option("--steps", arguments.steps, "steps to measure in a launch (12)")
      ->check(CLI::Range(4, 100000));
  verb.add_option("--warmup-steps", arguments.warmup, "steps before them that are left out (3)")
      ->check(CLI::Range(0, 100000));
  verb.add_option("--trial-seconds", arguments.trial_seconds, "a launch is ended after this (60)")
      ->check(CLI::Range(1.0, 1e6));
  verb.add_flag(
      "--whole", arguments.whole,
      "judge by the time of the whole command, which ends by itself, instead of a step's");
  verb.add_option("--learn-seconds", arguments.learn_seconds,
                  "of them, to learn per-call settings at most (10)")
      ->check(CLI::Range(0.0, 1e6));
  verb.add_option("--learn-cost", arguments.learn_cost,
                  "of --online: percent of the job's time so far, of 1,000 steps at least, that "
                  "trying may cost (2; 0: no limit)")
      ->check(CLI::Range(0.0, 100.0));
  add_constraint_options(verb, arguments);
  verb.add_flag("--online", arguments.online,
                "start the command once, to its own end, and learn per-call settings meanwhile");
  verb.add_flag("--recheck", arguments.recheck,
                "compare the settings in --out with the default again, on few launches");
  verb.add_option(
      "--gloo-floor", arguments.gloo_floor,
      "settings file of `tune search FILE` whose rows of Gloo are a floor, besides what the "
      "database holds of Gloo where the job runs");
  verb.add_option("--plugin", arguments.plugin,
                  "the NCCL plugin as the job sees it (next to this program)");
}

namespace {

/// The status of a run: `last` passes over tries that came to nothing.
const char* end_of(int code, bool came_to_nothing) {
  if (interrupted()) return "interrupted";
  return came_to_nothing && code != exit_code::kFine ? "failed" : "complete";
}

}  // namespace

int run_job_tuning(const TuneArguments& arguments, const Shared& shared) {
  if (const auto& file = arguments.experiment.machine_file; !file.empty())
    setenv(kDeclaredVariable,
           declared_text(parse_declarations(read_input_file(file), file)).c_str(), 1);
  if (shared.command.empty() || shared.command.front().empty())
    throw Error(ErrorKind::input,
                "no command stands behind --: dynamiccl tune -- torchrun train.py");
  if (!arguments.experiment.file.empty())
    throw Error(ErrorKind::input, "tune takes an experiment file or a command, not both: " +
                                      arguments.experiment.file);
  JobTuningOptions options = tuning_options(arguments);
  Console console(shared.verbosity());
  const HeldFolder out = out_folder(arguments);
  const HeldFolder launches = out.below("launches", 0);
  const JobCommand command{.argv = shared.command,
                           .out = out,
                           .launches = launches,
                           .plugin = plugin_of(arguments),
                           .environment = {}};
  require_free_names(command);
  require_watchable(command);
  const FileDescriptor lock = lock_folder(launches);
  say_left_out(command, arguments.online, console);
  std::optional<StoredChoice> stored;
  if (arguments.recheck) stored = read_choice(out.path());

  const InterruptGuard guard;
  make_db_folder(shared.db);
  Store store(shared.db);
  options.gloo = known_gloo_times(shared.db, arguments.gloo_floor);
  const RunInfo info = job_run(shared, options,
                               arguments.online    ? "online"
                               : arguments.recheck ? "recheck"
                                                   : "job");
  store.begin_run(info, {}, {});
  JobLog log(shared.db, info.id, options);
  int code = exit_code::kCellFailed;
  try {
    const auto store_decisions = [&](const DecisionAuthor& author,
                                     const std::vector<DecisionInfo>& rows) {
      log.add(author, rows);
    };
    JobTuning tuning(command, options, console, store_decisions);
    if (!arguments.online) announce(options, command, arguments.recheck, console);
    if (arguments.online) {
      code = run_online(command, options, store_decisions, info.id, shared, console);
    } else if (arguments.recheck) {
      code = finish_recheck(tuning.recheck(stored->choice), *stored, info, shared, console);
    } else {
      code = finish_search(tuning.search_and_confirm(), arguments, out, command.plugin, info,
                           shared, console);
    }
    store.end_run(info.id, end_of(code, arguments.online && log.empty()));
  } catch (...) {
    store.end_run(info.id, "failed");
    throw;
  }
  return code;
}

}  // namespace dynamiccl
