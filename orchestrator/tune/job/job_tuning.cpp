#include "orchestrator/tune/job/job_tuning.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/setting.hpp"
#include "core/vocabulary/text.hpp"
#include "orchestrator/run/stored_decisions.hpp"
#include "profiles/detect/facts.hpp"
#include "profiles/detect/probes/meeting_folder.hpp"
#include "profiles/detect/probes/one_host.hpp"
#include "tuner/agents/policy_file.hpp"
#include "tuner/export/one_host.hpp"
#include "tuner/search/cell_answer.hpp"
#include "tuner/state/state_from_regime.hpp"

extern char** environ;  // NOLINT: POSIX has it in no header

namespace dynamiccl {
namespace {

/// Launch settings whose step is within this of the best so far are worth learning under.
constexpr double kPromising = 1.1;
/// Of what a job says last: a line may be as long as it likes.
constexpr std::size_t kMostOfLine = 300;

std::string milliseconds(double us) { return fmt::format("{:.4g} ms", us / 1e3); }

/// Names of NCCL's variables that the user sets himself, by environment or file.
std::set<std::string> users_variables() {
  std::set<std::string> names;
  const auto add = [&](const std::string& line) {
    const auto equals = line.find('=');
    if (line.starts_with("NCCL_") && equals != std::string::npos)
      names.insert(line.substr(0, equals));
  };
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) add(*entry);
  std::istringstream lines(users_conf());
  for (std::string line; std::getline(lines, line);) add(line);
  return names;
}

/// A line's beginning, whole letters, and how much it goes on.
std::string shortened(const std::string& line) {
  std::size_t end = kMostOfLine;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0U) == 0x80U) --end;
  return fmt::format("{} ... ({} more bytes)", line.substr(0, end), line.size() - end);
}

/// The last line that says something: frames of dashes do not.
std::string last_line(const std::string& text) {
  std::string last;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (std::any_of(line.begin(), line.end(),
                    [](unsigned char c) { return std::isalnum(c) != 0 || c >= 0x80; }))
      last = trim(line);
  return last.size() <= kMostOfLine ? last : shortened(last);
}

/// How many sizes' settings were learnt, beside those that came with the launch settings.
std::string table_text(const CallTable& table, const CallTable& given) {
  std::size_t cells = 0;
  for (std::size_t f = 0; f < table.cells.size(); ++f)
    for (std::size_t bin = 0; bin < table.cells[f].size(); ++bin)
      cells += static_cast<std::size_t>(table.cells[f][bin] != given.cells[f][bin]);
  return cells == 0 ? "" : fmt::format(" + {} sizes learnt per call", cells);
}

/// What containers of the ranks need for the library.
std::string preload_flags(const JobCommand& command) {
  return fmt::format("{} {} --env LD_PRELOAD={}", volume_option(command.one_host_folder()),
                     volume_option(command.one_host_library(), "", true),
                     shell_quote(command.one_host_library()));
}

}  // namespace

JobTuning::JobTuning(
    const JobCommand& command, const JobTuningOptions& options, Console& console,
    std::function<void(const DecisionAuthor&, const std::vector<DecisionInfo>&)> store)
    : command_(command), options_(options), console_(console), store_(std::move(store)) {
  if (options.call_agent != "none")
    call_agent_ = make_agent(options.call_agent, options.agent_options);
  author_ = {options.agent, "", options.agent_options.seed};
  if (reads_policy(options.agent))
    author_.policy_version =
        read_policy(policy_or_throw(options.agent_options.policy_path)).version();
}

JobTrialResult JobTuning::launch(const JobChoice& setting, double learn_seconds, bool times_calls,
                                 const std::string& what, const std::string& label) {
  TrialRequest request;
  request.number = launched_++;
  request.variables = setting.variables;
  request.table = setting.table;
  // Its launches say whether it holds, whatever is new here.
  request.origin = {setting.origin.ranks, setting.origin.nodes, {}};
  // The first one may take all of it: how long launches are nobody knows before.
  request.seconds = std::min(options_.trial_seconds, options_.budget_s);
  request.steps = options_.steps;
  request.warmup = options_.warmup;
  request.learn_seconds = call_agent_ == nullptr ? 0 : learn_seconds;
  // The best launch setting is started again to learn under, however busy the machine is then.
  if (best_us_ > 0 && setting.variables != best_.variables)
    request.learn_below = Micros(kPromising * best_us_);
  request.times_calls = times_calls;
  request.step_calls = result_.observed.step_calls;
  request.leader.agent = options_.call_agent == "none" ? "default" : options_.call_agent;
  request.leader.agent_options = options_.agent_options;
  request.leader.kept_agent = call_agent_;
  request.leader.calls_per_trial = options_.calls_per_trial;
  request.leader.gloo = options_.gloo;
  request.leader.parallelism = options_.parallelism;
  // A trial is there to learn in, whatever it costs.
  request.leader.learn_cost = 0;
  if (!label.empty()) request.leader.label = "#" + label;
  static const nlohmann::json kHost = probe_facts();
  request.leader.host_facts = kHost;
  JobTrialResult trial =
      run_trial(command_, request, [&](const std::string& text) { console_.detail(text); });
  longest_s_ = std::max(longest_s_, trial.seconds);
  if (trial.interrupted_by != 0) {
    result_.interrupted_by = trial.interrupted_by;
    console_.note(fmt::format("{}: interrupted after {:.1f} s", what, trial.seconds));
  } else {
    const std::string end = trial.failed() ? last_line(trial.output) : "";
    console_.launched(
        trial.ok() ? fmt::format("{}: {} a step", what, milliseconds(trial.step.count())) : what,
        end.empty() ? trial.reason
                    : fmt::format("{}; its last line on stderr: {}", trial.reason, end),
        trial.seconds);
    if (!trial.ok()) ++result_.failed_launches;
  }
  store_call_decisions(trial, label);
  return trial;
}

void JobTuning::store_call_decisions(const JobTrialResult& trial, const std::string& label) {
  if (trial.decisions.empty()) return;
  std::vector<DecisionInfo> rows;
  for (const DecisionRecord& record : trial.decisions) {
    rows.push_back(decision_info(record));
    // What holds under one launch's settings says nothing of another's.
    if (!label.empty()) rows.back().environment += " with " + label;
  }
  store_(trial.decisions.front().author, rows);
}

namespace {

/// What ranks need that are not started here, or not as this user.
std::string of_elsewhere(const JobCommand& command) {
  if (const std::string flags = goes_elsewhere(command); !flags.empty()) return "\n" + flags;
  if (geteuid() != 0) return "";
  return fmt::format(
      "\nRanks that run as another user may write there after `chmod 1777 {}` alone, as may "
      "every user of this machine then",
      command.launches.path());
}

}  // namespace

void JobTuning::require_tunable(const JobTrialResult& seen) const {
  const std::string end = last_line(seen.output);
  const std::string said = end.empty() ? "" : "\nits last line on stderr: " + end;
  if (!seen.started) throw Error(ErrorKind::input, seen.reason);
  if (seen.disk_full) throw Error(ErrorKind::environment, seen.reason);
  if (!seen.ok() && seen.failed())
    throw Error(
        ErrorKind::input,
        fmt::format("the command failed by itself (exit code {}, after {:.1f} s), before {}{}"
                    "\nStart it without `dynamiccl tune --` until it runs; it gets no input "
                    "here",
                    seen.exit_code, seen.seconds,
                    seen.heard ? "enough of its steps were seen" : "any rank had loaded the plugin",
                    said));
  if (!seen.heard && !seen.other_library.empty())
    throw Error(
        ErrorKind::input,
        fmt::format(
            "{:.0f} s after its start the command's ranks have {} loaded, and neither NCCL "
            "nor CUDA: `tune --` finds settings of NCCL alone, so it was ended. `dynamiccl "
            "tune search FILE` finds settings for {}, `dynamiccl export` writes what a job loads, "
            "and `dynamiccl doctor --job PID` says what holds a job up",
            seen.seconds, seen.other_library, seen.other_library));
  if (!seen.heard)
    throw Error(
        ErrorKind::input,
        fmt::format(
            "the command ran for {:.0f} s and no rank of it loaded the plugin, so nothing is known "
            "of its calls{}{}\nIt must use NCCL 2.23 or later (earlier ones read no "
            "NCCL_CONF_FILE), reach its first collective within --trial-seconds, and see {} and "
            "{}; NCCL_DEBUG=INFO shows whether NCCL read the file and found the plugin{}\nA job "
            "that communicates by MPI or Gloo alone has no such plugin: `dynamiccl tune search "
            "FILE` finds settings for it, `dynamiccl export` writes what it loads",
            seen.seconds,
            seen.without_gpu ? "; no GPU is here, so it was not waited for until --trial-seconds"
                             : "",
            said, command_.launches.path(), command_.plugin, of_elsewhere(command_)));
  for (const std::string& note : seen.notes)
    if (note.find("CUDA graphs") != std::string::npos)
      throw Error(ErrorKind::input, note +
                                        "; run the job without graph capture to tune it, its "
                                        "settings then hold for the captured calls too");
  if (!seen.ok() && seen.ended_itself)
    throw Error(
        ErrorKind::input,
        fmt::format("no step could be found in the job, which was over after {:.1f} s: {}{}\n"
                    "Let it train for more steps, or ask for fewer with --steps and "
                    "--warmup-steps",
                    seen.seconds, seen.reason, said));
  if (!seen.ok())
    throw Error(ErrorKind::input,
                fmt::format("no step could be found in the job: {}{}\nGive it more time with "
                            "--trial-seconds (it had {:.0f} s), or fewer --steps",
                            seen.reason, said, seen.seconds));
}

void JobTuning::observe() {
  console_.expect(static_cast<std::size_t>(options_.launches));
  JobTrialResult seen = launch({}, 0, true, "default, looked at alone");
  if (result_.interrupted_by != 0) return;
  require_tunable(seen);
  if (!seen.facts)
    throw Error(ErrorKind::input, "the ranks did not tell where they run (no rank-*.json in " +
                                      command_.launches.path() +
                                      "): they must be able to write there");
  result_.facts = *seen.facts;
  if (call_agent_ != nullptr && admit(result_.facts.state) != GuardVerdict::pass) {
    call_agent_.reset();
    result_.notes.emplace_back(
        "in-network aggregation is active: NCCL's own choices are left alone per call");
  }
  if (call_agent_ != nullptr && !seen.beyond_this_host.empty()) {
    call_agent_.reset();
    result_.notes.push_back(seen.beyond_this_host);
  }
  result_.facts.one_host = offered_one_host();
  // The space says so.
  if (keeps_order(result_.facts, options_.constraints)) call_agent_.reset();
  best_us_ = seen.step.count();
  best_arm_ = "default";
  result_.observed = std::move(seen);
}

/// Ranks of this machine that speak by sockets because they are apart, and by nobody's wish.
OneHostWay JobTuning::offered_one_host() {
  const JobFacts& facts = result_.facts;
  const bool apart =
      facts.network && !facts.rdma && facts.ranks > 1 && facts.ranks_per_host == facts.ranks;
  if (!apart || (facts.nccl_version > 0 && facts.nccl_version < kOneHostSince))
    return OneHostWay::none;
  std::set<std::string> said = users_variables();
  for (const auto& [name, value] : facts.variables) said.insert(name);
  for (const char* name : {"NCCL_HOSTID", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_NET"})
    if (said.contains(name)) {
      result_.notes.push_back(fmt::format("{} is set: the ranks stay hosts of their own", name));
      return OneHostWay::none;
    }
  if (facts.one_dev_shm && !facts.preloaded) return OneHostWay::settings;
  make_one_host_folder(command_);
  const MeetingFolder folder = look_at_meeting_folder(command_.one_host_folder());
  std::error_code unseen;
  const std::string library = command_.one_host_library();
  if (folder.trouble == FolderTrouble::none && std::filesystem::exists(library, unseen) &&
      (facts.preloaded || goes_elsewhere(command_).empty()))
    return OneHostWay::library;
  result_.notes.push_back(fmt::format(
      "the ranks, all on this machine, speak by sockets, and one host could not be tried "
      "(docs/one-host.md): {}",
      folder.trouble != FolderTrouble::none
          ? fmt::format(
                "{}: {}; choose a short path in /dev/shm with --out, or name a folder by {}",
                command_.one_host_folder(), folder.why, kOneHostFolder)
          : "start them with " + preload_flags(command_)));
  return OneHostWay::none;
}

void JobTuning::make_search() {
  const JobTrialResult& seen = result_.observed;
  Task task;
  task.space = std::make_shared<const ActionSpace>(
      launch_space(result_.facts, options_.constraints, users_variables(), result_.notes));
  result_.settings = task.space->arms().size();
  const MainTraffic traffic = main_traffic(seen.mix).value_or(MainTraffic{});
  task.key = {result_.facts.regime.id,
              {traffic.collective, SizeBin::of(traffic.size), result_.facts.ranks,
               result_.facts.nodes, Architecture::ring, Backend::nccl}};
  task.state = result_.facts.state;
  task.state.parallelism = options_.parallelism;
  set_task(task.state, task.key.task, traffic.size, traffic.size);
  const double share = communication_share(seen.mix, seen.step).value_or(0.5);
  task.prior_log_us = launch_prior(*task.space, result_.facts, seen.step, share);
  console_.note(fmt::format(
      "{} a step{}, {} a step, of which collectives take {:.0f} % on the GPU; most bytes: {} "
      "of {}",
      counted(seen.calls_per_step, "call"), seen.by_pauses ? " (separated by pauses alone)" : "",
      milliseconds(seen.step.count()), 100 * share, name_of(traffic.collective),
      format_bytes(traffic.size)));
  console_.note(fmt::format("regime: {}; NCCL {}; {}", result_.facts.regime.name,
                            result_.facts.nccl(), counted(result_.settings, "launch setting")));
  say_floor();
  task.prior_trust = kLaunchPriorTrust;
  task_ = std::move(task);
  agent_ = launch_agent(options_.agent, options_.agent_options);
  loop_.emplace(*agent_);
  history_.emplace(result_.settings);
  best_settled_ = call_agent_ == nullptr;
}

/// What NCCL's default takes in this job against what Gloo took in its place.
void JobTuning::say_floor() const {
  if (options_.gloo == nullptr) return;
  const GlooFloor floor(*options_.gloo, result_.facts.regime.json);
  std::size_t known = 0;
  for (const MixEntry& entry : result_.observed.mix) {
    const auto gloo = floor.at(collective_of(entry.function), entry.ranks, Bytes(entry.bytes));
    if (!gloo || entry.timed == 0) continue;
    ++known;
    const Micros now(entry.device_us / static_cast<double>(entry.timed));
    if (now > *gloo)
      console_.note(fmt::format("{} of {} is slower than Gloo by NCCL's default: {}, Gloo took {}",
                                name_of(collective_of(entry.function)),
                                format_bytes(Bytes(entry.bytes)), format_micros(now),
                                format_micros(*gloo)));
  }
  if (known > 0)
    console_.note(fmt::format(
        "Gloo's time is known here for {} of {} sizes: calls' settings that take more than twice "
        "as long give way to NCCL's own, unless these take longer still",
        known, result_.observed.mix.size()));
}

JobChoice JobTuning::setting_of(std::size_t arm) const {
  JobChoice choice;
  const ActionSpace& space = *task_.space;
  choice.variables = settings_of(space.setting(space.arms()[arm]).launch_knobs, SettingScope::env);
  if (choice.variables.erase("NCCL_HOSTID") == 0) return choice;
  const JobFacts& facts = result_.facts;
  choice.variables = facts.one_host == OneHostWay::library
                         ? one_host_library(command_.one_host_library(), command_.one_host_folder())
                         : one_host_settings(facts.one_network && facts.all_gpus);
  return choice;
}

std::string JobTuning::text_of(std::size_t arm) const {
  const ActionSpace& space = *task_.space;
  if (arm == 0) return "default";
  const std::string text = space.text(space.arms()[arm]);
  return text.starts_with("library ") ? text.substr(8) : text;
}

DecisionInfo JobTuning::launch_decision(const char* kind, std::size_t arm,
                                        const State& state) const {
  DecisionRecord record = record_of(task_, {arm, 1, false}, state);
  // One step of the whole job, not a call of one size.
  record.task_key = fmt::format("nccl/job/step/r{}n{}", result_.facts.ranks, result_.facts.nodes);
  record.regime = result_.facts.regime.id;
  record.step = steps_logged_;
  record.kind = kind;
  // Each launch has a configuration of its own.
  record.epoch = static_cast<std::uint64_t>(launched_);
  record.arm = text_of(arm);
  return decision_info(record);
}

void JobTuning::learn(const Choice& choice, const JobTrialResult& trial) {
  const Trial learnt{trial.ok(), trial.step};
  history_->add(choice.arm, learnt);
  loop_->put({choice.arm, 1, false});
  // A launch's choice is stored with the one before it, not with itself.
  const State chosen_in = loop_->observe(task_, learnt, std::nullopt).state;
  DecisionInfo row = launch_decision(choice.arm == 0      ? "reference"
                                     : choice.exploratory ? "explore"
                                                          : "exploit",
                                     choice.arm, chosen_in);
  row.propensity = std::clamp(choice.propensity, 1e-12, 1.0);
  const auto log_us = history_->log_us(0);
  const double reference = log_us ? std::exp(*log_us) : 0;
  row.guard = name_of(
      judge_trial(trial.ok(), trial.step, Micros(choice.arm == 0 ? 0 : reference), std::nullopt));
  row.calls = static_cast<std::int64_t>(trial.step_us.size());
  if (trial.ok()) {
    row.time_us = trial.step.count();
    const nlohmann::json applied{{"step_us", trial.step_us},
                                 {"learnt_step_us", trial.learnt_step.count()},
                                 {"seconds", trial.seconds}};
    row.applied_json = applied.dump();
  }
  if (reference > 0) {
    row.reference_us = reference;
    StepOutcome outcome =
        outcome_of({.choice = choice, .switched = choice.arm != 0, .state = {}},
                   trial.ok() ? trial.step : Micros(reference), Micros(reference));
    outcome.fault = !trial.ok();
    const RewardTerms terms = reward(outcome);
    row.reward = terms.total();
    row.reward_json = reward_json(terms).dump();
  }
  ++steps_logged_;
  store_(author_, {row});
}

void JobTuning::consider(const JobChoice& choice, Micros step, const std::string& arm) {
  if (!(step.count() > 0) || step.count() >= best_us_) return;
  best_us_ = step.count();
  best_ = choice;
  best_arm_ = arm;
}

TaskEvent JobTuning::try_arm(const Choice& choice) {
  JobChoice setting = setting_of(choice.arm);
  const std::string arm = text_of(choice.arm);
  const JobTrialResult trial = launch(setting, options_.learn_seconds, true, arm, arm);
  if (result_.interrupted_by != 0) return {TaskEvent::stop};
  learn(choice, trial);
  note_one_host(setting, trial);
  const TaskEvent event{TaskEvent::measured, choice.arm, trial.ok() ? trial.step.count() : NAN};
  if (!trial.ok()) return event;
  setting.origin = trial.origin;
  consider(setting, trial.step, arm);
  if (best_.variables == setting.variables) {
    best_launch_arm_ = choice.arm;
    best_settled_ = trial.settled || call_agent_ == nullptr;
  }
  if (!trial.learnt) return event;
  const CallTable given = setting.table;
  setting.table = *trial.learnt;
  setting.entries = trial.entries;
  for (TableEntry& entry : setting.entries)
    for (const auto& [name, value] : setting.variables)
      entry.setting.launch_knobs[setting_text(SettingScope::env, name)] = value;
  // Held against its own launch: an earlier one of the same setting may have been faster
  // throughout.
  const bool again = setting.variables == best_.variables && trial.step.count() > 0;
  const double pace = again ? std::min(1.0, best_us_ / trial.step.count()) : 1.0;
  consider(setting, Micros(trial.learnt_step.count() * pace),
           arm + table_text(setting.table, given));
  return event;
}

/// One host that came to nothing: ranks that the variables do not reach, or that the library leaves
/// apart, which it says on their standard error.
void JobTuning::note_one_host(const JobChoice& setting, const JobTrialResult& trial) {
  const bool one_host =
      setting.variables.contains(kOneHostFolder) || setting.variables.contains("NCCL_HOSTID");
  if (!one_host || !trial.facts || !trial.facts->network) return;
  result_.notes.push_back(fmt::format(
      "the ranks stayed hosts of their own although one host was tried (docs/one-host.md): {}",
      trial.facts->preloaded || setting.variables.contains("NCCL_HOSTID")
          ? "their standard error says why"
          : "the library was not loaded in them; start them with " + preload_flags(command_)));
}

bool JobTuning::owes_default_a_launch() const {
  return options_.launches > 2 && best_launch_arm_ == 0 && !best_settled_ &&
         loop_->steps() + 1 >= options_.launches;
}

bool JobTuning::is_spent(double share) const {
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - began_;
  return since.count() + longest_s_ > share * options_.budget_s;
}

TaskEvent JobTuning::answer(bool may_try) {
  constexpr double kToSearch = 0.5;
  if (may_try && !search_over_ && !is_spent(kToSearch)) {
    // Two settings that end the job are no accident of theirs.
    const bool failing = result_.failed_launches >= 3;
    if (failing) result_.notes.emplace_back("three launches failed: the search was ended");
    if (!failing && !owes_default_a_launch())
      if (const auto choice = next_launch(*loop_, task_, *history_)) {
        choice_ = *choice;
        return {TaskEvent::chosen, choice_.arm};
      }
    search_over_ = true;
    // What is learnt per call needs calls: the best launch setting gets a launch more for it.
    choice_ = {best_launch_arm_, 1, false};
    if (!best_settled_) return {TaskEvent::chosen, choice_.arm};
  }
  // Any setting but the default's: what was learnt per call may be all that is new.
  return {TaskEvent::finished, best_.is_default() ? 0 : std::max<std::size_t>(1, result_.settings)};
}

TaskEvent JobTuning::pair_launch(std::size_t arm) {
  const std::size_t pair = machine_.pairs.size();
  if (is_spent(1)) {
    result_.out_of_time = true;
    return {TaskEvent::stop};
  }
  if (!machine_.half && pair % static_cast<std::size_t>(options_.confirmation.launches) == 0)
    console_.expect(static_cast<std::size_t>(2 * options_.confirmation.launches));
  const JobTrialResult trial =
      launch(arm == 0 ? JobChoice{} : best_, 0, false,
             fmt::format("pair {}, {}", pair + 1, arm == 0 ? "default" : best_arm_));
  ++result_.confirm_launches;
  // The pairs before an interruption still say something, if not enough.
  if (result_.interrupted_by != 0) return {TaskEvent::stop};
  if (trial.ok()) return {TaskEvent::measured, arm, trial.step.count()};
  ++result_.failed_confirmations;
  result_.failure = trial.reason;
  return {TaskEvent::measured, arm, NAN};
}

TaskEvent JobTuning::measured(std::size_t arm) {
  if (machine_.stage == TaskStage::confirming) return pair_launch(arm);
  if (machine_.stage == TaskStage::trying) return try_arm(choice_);
  learn({0, 1, false}, result_.observed);
  return {TaskEvent::measured, 0, result_.observed.step.count()};
}

void JobTuning::drive(TaskEvent event) {
  machine_.rules = {.most = static_cast<std::size_t>(options_.launches) - 1,
                    .pairs = options_.confirmation};
  for (TaskAction action{TaskAction::choose};;) {
    std::tie(machine_, action) = next(std::move(machine_), event);
    if (action.kind == TaskAction::settle) return;
    event = action.kind == TaskAction::run ? measured(action.arm)
                                           : answer(action.kind == TaskAction::choose);
  }
}

void JobTuning::judge_pairs() {
  const std::vector<PairedTime>& times = machine_.pairs;
  const bool cut_off = result_.interrupted_by != 0 || result_.out_of_time;
  if (best_.is_default() && !cut_off) result_.verdict = Verdict::same;
  if (times.empty()) return;
  result_.ratio = ratio_of(times, deciding_confidence(times, options_.confirmation, cut_off));
  const WorkedTimes sides = worked(times);
  result_.pairs = sides.chosen_us.size();
  if (!sides.chosen_us.empty()) {
    result_.default_us = median(sides.default_us);
    result_.chosen_us = median(sides.chosen_us);
  }
  result_.verdict = confirmed_verdict(times, options_.confirmation, cut_off);
  if (machine_.kept != 0) result_.choice = best_;
}

/// The candidates, and what is said of the job by the measure of all searches.
std::string JobTuning::with_flags(const std::string& candidates_json) const {
  CellEvidence evidence;
  evidence.arms = result_.settings;
  for (std::size_t arm = 0; arm < result_.settings; ++arm)
    evidence.tried += history_->tries(arm) > 0 ? 1 : 0;
  evidence.ratio = result_.ratio;
  const CellAnswer answer = answer_of(evidence, options_.confirmation);
  auto candidates = parsed_json(candidates_json);
  candidates["tried"] = evidence.tried;
  candidates["flags"] = nlohmann::json::array();
  if (!answer.flag.empty()) candidates["flags"].push_back(answer.flag);
  return candidates.dump();
}

JobTuningResult JobTuning::search_and_confirm() {
  observe();
  if (result_.interrupted_by != 0) return std::move(result_);
  make_search();
  drive({TaskEvent::search});
  result_.search_launches = launched_ - result_.confirm_launches;
  result_.arm = best_arm_;
  judge_pairs();
  if (result_.interrupted_by == 0 || result_.kept()) {
    DecisionInfo row = launch_decision("final", result_.kept() ? best_launch_arm_ : 0, task_.state);
    row.arm = result_.kept() ? best_arm_ : "default";
    row.guard = name_of(best_.is_default() || result_.kept() ? GuardVerdict::pass
                        : result_.verdict == Verdict::slower ? GuardVerdict::slower_than_default
                                                             : GuardVerdict::not_confirmed);
    row.time_us = result_.kept() ? result_.chosen_us : result_.default_us;
    row.reference_us = result_.default_us;
    row.calls = result_.confirm_launches;
    row.candidates_json = with_flags(row.candidates_json);
    store_(author_, {row});
  }
  return std::move(result_);
}

JobTuningResult JobTuning::recheck(const JobChoice& choice) {
  JobTuningOptions cheaper = options_;
  cheaper.confirmation.looks = kLooksOfRecheck;
  JobTuning again(command_, cheaper, console_, store_);
  again.best_ = choice;
  again.best_arm_ = again.result_.arm = "stored settings";
  // The choice stands before anything was measured: as if the search were just over.
  again.machine_.stage = TaskStage::asking;
  again.drive({TaskEvent::finished, choice.is_default() ? std::size_t{0} : 1});
  again.judge_pairs();
  return std::move(again.result_);
}

}  // namespace dynamiccl
