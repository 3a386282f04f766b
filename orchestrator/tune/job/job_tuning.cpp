#include "orchestrator/tune/job/job_tuning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/vocabulary/malloc_settings.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/setting.hpp"
#include "orchestrator/run/stored_decisions.hpp"
#include "orchestrator/tune/job/job_words.hpp"
#include "profiles/detect/facts.hpp"
#include "tuner/agents/policy_file.hpp"
#include "tuner/export/one_host.hpp"
#include "tuner/job/mpi_space.hpp"
#include "tuner/search/cell_answer.hpp"

namespace dynamiccl {
namespace {

/// Launch settings whose step is within this of the best so far are worth more than a few steps,
/// and learning under.
constexpr double kPromising = 1.1;
/// How many sizes' settings were learnt, besides those that came with the launch settings.
std::string table_text(const CallTable& table, const CallTable& given) {
  std::size_t cells = 0;
  for (std::size_t f = 0; f < table.cells.size(); ++f)
    for (std::size_t bin = 0; bin < table.cells[f].size(); ++bin)
      cells += static_cast<std::size_t>(table.cells[f][bin] != given.cells[f][bin]);
  return cells == 0 ? "" : fmt::format(" + {} sizes learnt per call", cells);
}

}  // namespace

JobTuning::JobTuning(
    const JobCommand& command, const JobTuningOptions& options, Console& console,
    std::function<void(const DecisionAuthor&, const std::vector<DecisionInfo>&)> store)
    : command_(command), options_(options), console_(console), store_(std::move(store)) {
  if (options.call_agent != "none")
    call_agent_ = make_agent(options.call_agent, options.agent_options);
  author_ = {options.agent, "", options.agent_options.seed};
  whole_ = options.whole;
  if (reads_policy(options.agent))
    author_.policy_version =
        read_policy(policy_or_throw(options.agent_options.policy_path)).version();
}

JobTrialResult JobTuning::launch(const JobChoice& setting, double learn_seconds, bool times_calls,
                                 const std::string& what, const std::string& label) {
  TrialRequest request;
  request.number = launched_++;
  request.library = result_.facts.library;
  request.whole = whole_;
  request.variables = setting.variables;
  request.table = setting.table;
  // Its launches say whether it holds, whatever is new here.
  request.origin = {setting.origin.ranks, setting.origin.nodes, {}};
  // The first one may take all of it: how long launches are nobody knows before.
  request.seconds = std::min(options_.trial_seconds, options_.budget_s);
  request.steps = options_.steps;
  request.warmup = options_.warmup;
  request.learn_seconds = call_agent_ == nullptr ? 0 : learn_seconds;
  // Pairs are compared by all of their steps. The best launch setting is started again to learn
  // under, however busy the machine is then.
  if (!label.empty() && best_us_ > 0 && setting.variables != best_.variables)
    request.hopeless_from = Micros(kPromising * best_us_);
  request.times_calls = times_calls;
  request.step_calls = result_.observed.step_calls;
  request.leader.agent = options_.call_agent == "none" ? "default" : options_.call_agent;
  request.leader.agent_options = options_.agent_options;
  request.leader.kept_agent = call_agent_;
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
  } else if (trial.is_recognised()) {
    // Started only to learn that, and started anew: not one of the launches that are counted.
    console_.note(fmt::format("{}: its ranks have {} loaded, after {:.1f} s", what,
                              library_title(*trial.speaks), trial.seconds));
  } else {
    const std::string end = trial.failed() ? last_line(trial.output) : "";
    console_.launched(trial.ok() ? fmt::format("{}: {}{}{}", what, milliseconds(trial.step.count()),
                                               trial.whole ? " in all" : " a step",
                                               trial.cut ? ", which cannot win" : "")
                                 : what,
                      end.empty()
                          ? trial.reason
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

JobChoice JobTuning::setting_of(std::size_t arm) const {
  JobChoice choice;
  choice.whole = whole_;
  const ActionSpace& space = *task_.space;
  if (result_.facts.library != Backend::nccl) {
    choice.knobs = space.setting(space.arms()[arm]).launch_knobs;
    choice.variables = launch_variables(choice.knobs, variable_here(kTunablesVariable));
    return choice;
  }
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
  record.task_key = fmt::format("{}/job/step/r{}n{}", name_of(result_.facts.library),
                                result_.facts.ranks, result_.facts.nodes);
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
                                 {"cut", trial.cut},
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
  // Compared with its own launch: an earlier one of the same setting may have been faster
  // throughout.
  const bool again = setting.variables == best_.variables && trial.step.count() > 0;
  const double pace = again ? std::min(1.0, best_us_ / trial.step.count()) : 1.0;
  consider(setting, Micros(trial.learnt_step.count() * pace),
           arm + table_text(setting.table, given));
  return event;
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
  if (!choice.entries.empty())
    again.result_.facts.library = choice.entries.front().key.task.backend;
  again.whole_ = choice.whole;
  again.best_ = choice;
  again.best_arm_ = again.result_.arm = "stored settings";
  // The choice stands before anything was measured: as if the search were just over.
  again.machine_.stage = TaskStage::asking;
  again.drive({TaskEvent::finished, choice.is_default() ? std::size_t{0} : 1});
  again.judge_pairs();
  return std::move(again.result_);
}

}  // namespace dynamiccl
