#include "orchestrator/tune/tuning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "core/statistics/saturation.hpp"
#include "core/statistics/verdict.hpp"
#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "orchestrator/tune/fresh_launches.hpp"
#include "train/spec/training.hpp"
#include "tuner/agents/fastest_measured.hpp"
#include "tuner/agents/policy_file.hpp"
#include "tuner/search/cell_answer.hpp"
#include "tuner/state/features.hpp"
#include "tuner/state/state_from_regime.hpp"
#include "tuner/table/table.hpp"

namespace dynamiccl {
namespace {

using nlohmann::json;

/// Sizes far apart first: what is learnt of them tells most of the sizes between.
std::vector<std::size_t> search_order(const TunePlan& plan) {
  std::map<std::pair<std::size_t, Collective>, std::vector<std::size_t>> rows;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t)
    rows[{plan.tasks[t].group, plan.tasks[t].cell.collective}].push_back(t);
  std::vector<std::pair<std::size_t, std::size_t>> ranked;
  for (auto& [key, tasks] : rows) {
    std::sort(tasks.begin(), tasks.end(), [&](std::size_t a, std::size_t b) {
      return plan.tasks[a].cell.size < plan.tasks[b].cell.size;
    });
    for (std::size_t i = 0; i < tasks.size(); ++i)
      ranked.emplace_back(i % 4 == 1 ? 0 : i % 4 == 3 ? 1 : 2 + i % 2, tasks[i]);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [&](const auto& a, const auto& b) {
    // The floor of the others first within a wave.
    const auto other = [&](std::size_t t) {
      return plan.base.groups[plan.tasks[t].group].backend != floor_backend();
    };
    return std::pair(a.first, other(a.second)) < std::pair(b.first, other(b.second));
  });
  std::vector<std::size_t> order;
  for (const auto& [rank, task] : ranked) order.push_back(task);
  return order;
}

class LiveTuning {
 public:
  LiveTuning(TunePlan& plan, LaunchEvaluator& evaluator, DecisionLog& log, Console& console,
             const TuningOptions& options)
      : plan_(plan),
        evaluator_(evaluator),
        log_(log),
        console_(console),
        options_(options),
        order_(search_order(plan)) {
    for (const std::size_t t : order_) searched_.push_back(plan.tasks[t].search);
  }

  /// The table's settings instead of a search's.
  TuningResult apply(const std::string& run_id, const ConfigurationTable& table) {
    tuning_ = log_.begin({run_id, "live", "table", "", 0, table.provenance.dump()});
    TuningResult result;
    std::vector<Ask> asks;
    for (std::size_t t = 0; t < plan_.tasks.size(); ++t) asks.push_back({t, 0});
    const auto references = evaluator_.measure(asks);
    for (std::size_t t = 0; t < references.size(); ++t) {
      TunedTask tuned;
      tuned.task = t;
      SearchTask& search = plan_.tasks[t].search;
      if (!references[t].regime_id.empty()) search.task.key.regime = references[t].regime_id;
      if (references[t].trial.ok) tuned.outcome.default_time = references[t].trial.time;
      tuned.outcome.evaluations = 1;
      if (!references[t].regime.is_null())
        tuned.outcome.guard = admit(state_from_regime(references[t].regime, search.nodes));
      if (tuned.outcome.guard == GuardVerdict::pass)
        tuned.outcome.arm = tuned.candidate = arm_from(table, search, references[t]);
      tuned.outcome.tried =
          tuned.candidate == 0 ? 1 : 2;  // the default, and what the table asks for
      result.tasks.push_back(std::move(tuned));
    }
    keep_verdicts_ = true;
    if (evaluator_.interrupted_by() == 0) confirm(result);
    for (TunedTask& tuned : result.tasks) finish(tuned);
    log_finals(result);
    result.interrupted_by = evaluator_.interrupted_by();
    return result;
  }

  TuningResult go(const std::string& run_id) {
    tuning_ = log_.begin(
        {run_id, "live", options_.agent, policy_version(options_.agent, options_.agent_options),
         options_.agent_options.seed, options_json(options_.agent, options_.agent_options).dump()});
    TuningResult result;
    result.arms = plan_.arm_count();
    result.agent = options_.agent;
    const SearchOptions limits = search_options();
    announce(limits);
    const auto outcomes = run_search(limits);
    for (std::size_t i = 0; i < order_.size(); ++i) {
      plan_.tasks[order_[i]].search = searched_[i];
      TunedTask tuned;
      tuned.task = order_[i];
      tuned.outcome = outcomes[i];
      tuned.candidate = candidate_of(tuned.outcome);
      result.evaluations += outcomes[i].evaluations;
      result.tasks.push_back(std::move(tuned));
    }
    result.spent = limits.max_evaluations != 0 && result.evaluations >= limits.max_evaluations;
    std::sort(result.tasks.begin(), result.tasks.end(),
              [](const TunedTask& a, const TunedTask& b) { return a.task < b.task; });
    if (plan_.simulated())
      for (TunedTask& tuned : result.tasks) compare_simulated(tuned);
    if (!plan_.simulated() && evaluator_.interrupted_by() == 0) measure_references(result);
    if (!plan_.simulated() && evaluator_.interrupted_by() == 0) confirm(result);
    for (TunedTask& tuned : result.tasks) finish(tuned);
    log_finals(result);
    result.interrupted_by = evaluator_.interrupted_by();
    return result;
  }

 private:
  std::size_t arm_from(const ConfigurationTable& table, const SearchTask& search,
                       const Measured& reference) const {
    RegimeKey key = search.task.key;
    Regime detected;
    detected.id = reference.regime_id;
    detected.json = reference.regime;
    const auto regime = nearest_regime(table, detected);
    if (!regime) return 0;
    key.regime = table.regimes[regime->index].id;
    const auto match = find_entry(table, key);
    if (!regime->exact)
      console_.detail(fmt::format("{}: regime {}", search.task.key.task.text(), regime->text));
    if (!match || match->entry->is_default()) return 0;
    if (!match->exact) console_.detail(match->text);
    const ActionSpace& space = *search.task.space;
    for (std::size_t a = 0; a < space.arms().size(); ++a)
      if (space.setting(space.arms()[a]) == match->entry->setting) return a;
    console_.note(fmt::format("{}: {} does not exist here, the default stays",
                              search.task.key.task.text(), match->entry->arm));
    return 0;
  }

  /// What is going to happen, before it does. A launch measures what several open cells ask for, so
  /// that there are fewer of them than measurements.
  void announce(const SearchOptions& limits) {
    const auto measurements = limits.max_evaluations > 0
                                  ? static_cast<std::size_t>(limits.max_evaluations)
                                  : plan_.arm_count();
    evaluator_.expect(measurements);
    if (plan_.simulated())
      return console_.note(fmt::format("up to {}, each simulated once, as it repeats bit for bit",
                                       counted(measurements, "evaluation")));
    const auto rounds = (measurements + limits.in_flight - 1) / limits.in_flight;
    const auto groups = plan_.base.groups.size();
    const auto searching = std::min(measurements, rounds * groups);
    // A fresh launch holds the choices of all cells of its group.
    const auto takes = [&](int looks) {
      const auto rounds_of_both = 2 * static_cast<std::size_t>(options_.confirm_launches * looks);
      return format_eta(evaluator_.estimated_s(searching + rounds_of_both * groups,
                                               measurements + rounds_of_both * searched_.size()));
    };
    const auto either = [](const auto& least, const auto& most) {
      return least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most);
    };
    console_.note(fmt::format(
        "up to {} in some {}, then each choice against the default on {} fresh launches; about {} "
        "on an idle machine",
        counted(measurements, "measurement"), counted(searching, "launch"),
        either(options_.confirm_launches, options_.confirm_launches * rule().looks),
        either(takes(1), takes(rule().looks))));
  }

  [[nodiscard]] SearchOptions search_options() const {
    SearchOptions limits;
    limits.in_flight = std::max<std::size_t>(1, (searched_.size() + 3) / 4);
    const double share = plan_.options.budget * static_cast<double>(plan_.arm_count());
    const bool unlimited = options_.agent == "exhaustive" || options_.agent == "default";
    limits.max_evaluations = options_.evaluations > 0 ? options_.evaluations
                             : unlimited              ? 0
                                                      : static_cast<int>(share);
    // What SMPI cannot run is no fault of the machine that it simulates.
    if (plan_.simulated()) limits.limits.faults = std::numeric_limits<int>::max();
    return limits;
  }

  std::vector<SearchOutcome> run_search(const SearchOptions& limits) {
    auto agent = make_agent(options_.agent, options_.agent_options);
    if (plan_.simulated()) agent = std::make_unique<FastestMeasured>(std::move(agent));
    for (const Experience& known : options_.experience) {
      Task task = plan_.tasks[known.task].search.task;
      task.key.regime = known.regime_id;
      agent->learn(task, known.arm, {true, known.time});
    }
    std::vector<DecisionInfo> rows;
    const auto outcomes = search(
        *agent, searched_,
        [&](const std::vector<Ask>& asks) {
          log_.add(tuning_, rows);
          rows.clear();
          return evaluator_.measure(renumbered(asks));
        },
        limits,
        [&](const SearchStep& step) {
          set_floor(step);
          rows.push_back(
              decision_of(plan_, plan_.tasks[order_[step.task]], searched_[step.task], step, 0));
        });
    log_.add(tuning_, rows);
    return outcomes;
  }

  [[nodiscard]] std::vector<Ask> renumbered(const std::vector<Ask>& asks) const {
    std::vector<Ask> own;
    for (const Ask& ask : asks) own.push_back({order_[ask.task], ask.arm});
    return own;
  }

  /// Defaults that the search had no use for: what the table and the flags compare with. They
  /// decide no choice but by Gloo's floor.
  void measure_references(TuningResult& result) {
    std::vector<Ask> asks;
    for (const TunedTask& tuned : result.tasks)
      if (!tuned.outcome.default_time && (tuned.outcome.guard == GuardVerdict::pass ||
                                          tuned.outcome.guard == GuardVerdict::ina_passthrough))
        asks.push_back({tuned.task, 0});
    if (asks.empty()) return;
    const auto measured = evaluator_.measure(asks);
    for (std::size_t i = 0; i < measured.size(); ++i) {
      const auto tuned = std::find_if(result.tasks.begin(), result.tasks.end(),
                                      [&](const TunedTask& t) { return t.task == asks[i].task; });
      if (measured[i].missed) ++tuned->outcome.missed;
      if (!measured[i].trial.ok) continue;
      tuned->outcome.default_time = measured[i].trial.time;
      SearchTask& own = plan_.tasks[asks[i].task].search;
      if (!measured[i].regime_id.empty()) own.task.key.regime = measured[i].regime_id;
      if (own.task.key.task.backend != floor_backend()) continue;
      for (TuneTask& other : plan_.tasks)
        if (&other.search != &own && other.environment == plan_.tasks[asks[i].task].environment &&
            is_floor(own, other.search))
          other.search.gloo_floor = measured[i].trial.time;
    }
  }

  /// Is one Gloo's task of the same shape as the other's?
  static bool is_floor(const SearchTask& gloo, const SearchTask& of) {
    TaskKey other = of.task.key.task;
    other.backend = floor_backend();
    return other == gloo.task.key.task && of.size == gloo.size;
  }

  /// Gloo's default is the floor of the same task on other backends.
  void set_floor(const SearchStep& step) {
    const TaskKey& gloo = searched_[step.task].task.key.task;
    if (gloo.backend != floor_backend() || step.choice.arm != 0 || !step.measured.trial.ok) return;
    const std::string& environment = plan_.tasks[order_[step.task]].environment;
    for (std::size_t i = 0; i < searched_.size(); ++i) {
      if (i != step.task && is_floor(searched_[step.task], searched_[i]) &&
          plan_.tasks[order_[i]].environment == environment)
        searched_[i].gloo_floor = step.measured.trial.time;
    }
  }

  /// A search that stays with the default is held to account too: with the fastest other setting.
  static std::size_t candidate_of(const SearchOutcome& outcome) {
    const GuardVerdict guard = outcome.guard;
    if (guard == GuardVerdict::ina_passthrough || guard == GuardVerdict::no_actuator ||
        guard == GuardVerdict::failed)
      return 0;
    return outcome.arm != 0 ? outcome.arm : outcome.challenger;
  }

  /// Simulated again both would take the same: one look at each is all there is.
  static void compare_simulated(TunedTask& tuned) {
    const SearchOutcome& outcome = tuned.outcome;
    const auto& chosen = outcome.arm != 0 ? outcome.best_time : outcome.challenger_time;
    if (tuned.candidate == 0 || !outcome.default_time || !chosen) return;
    TableEvidence& evidence = tuned.entry.evidence;
    evidence.launches = 1;
    evidence.default_us = outcome.default_time->count();
    evidence.tuned_us = chosen->count();
    evidence.ratio = evidence.tuned_us / evidence.default_us;
    Interval exact;
    exact.low = exact.high = evidence.ratio;
    tuned.ratio = Ratio{.value = evidence.ratio, .interval = exact};
  }

  [[nodiscard]] ConfirmationRule rule() const {
    ConfirmationRule rule{.launches = options_.confirm_launches};
    if (keep_verdicts_) {  // a table is judged once, by as many launches as were asked for
      rule.looks = 1;
      rule.confidence = 0.95;
    }
    return rule;
  }

  /// Default and candidate side by side on fresh launches.
  void confirm(TuningResult& result) {
    std::vector<Ask> choices;
    for (const TunedTask& tuned : result.tasks)
      if (tuned.candidate != 0) choices.push_back({tuned.task, tuned.candidate});
    if (choices.empty()) return;
    const ConfirmationRule rule = this->rule();
    console_.note(fmt::format(
        "confirming {} on {} fresh launches{}", counted(choices.size(), "choice"), rule.launches,
        rule.looks > 1
            ? fmt::format(", those that stay open on up to {}", rule.launches * rule.looks)
            : ""));
    evaluator_.expect(2 * choices.size() * static_cast<std::size_t>(rule.launches * rule.looks));
    const auto times = confirm_choices(evaluator_, choices, rule);
    for (TunedTask& tuned : result.tasks)
      if (tuned.candidate != 0) weigh(tuned, times.at({tuned.task, tuned.candidate}), rule);
  }

  static void weigh(TunedTask& tuned, const std::vector<PairedTime>& rounds,
                    const ConfirmationRule& rule) {
    const auto [chosen, defaults] = worked(rounds);
    TableEvidence& evidence = tuned.entry.evidence;
    evidence.launches = static_cast<int>(chosen.size());
    tuned.ratio = ratio_of(rounds, rule.confidence);
    if (!tuned.ratio) {
      if (!rounds.empty()) tuned.outcome.guard = GuardVerdict::failed;
      return;
    }
    evidence.default_us = median(defaults);
    evidence.tuned_us = median(chosen);
    evidence.ratio = tuned.ratio->value;
    evidence.ratio_low = tuned.ratio->interval ? tuned.ratio->interval->low : 0;
    evidence.ratio_high = tuned.ratio->interval ? tuned.ratio->interval->high : 0;
  }

  [[nodiscard]] CellAnswer answer(const TunedTask& tuned) const {
    const TuneTask& task = plan_.tasks[tuned.task];
    const auto& floor = task.search.gloo_floor;
    return answer_of({.arms = task.arms(),
                      .tried = tuned.outcome.tried,
                      .missed = tuned.outcome.missed,
                      .guard = tuned.outcome.guard,
                      .ratio = tuned.ratio,
                      .above_gloo_floor = floor && tuned.entry.evidence.tuned_us >
                                                       GuardLimits{}.gloo_floor * floor->count()},
                     rule());
  }

  /// The table's row: the candidate, or the default where it was not confirmed.
  void finish(TunedTask& tuned) const {
    const TuneTask& task = plan_.tasks[tuned.task];
    TableEntry& entry = tuned.entry;
    const CellAnswer said = answer(tuned);
    tuned.arms = task.arms();
    tuned.outcome.guard = said.guard;
    tuned.outcome.arm = said.kept || keep_verdicts_ ? tuned.candidate : 0;
    entry.key = task.search.task.key;
    entry.size = task.cell.size;
    const ActionSpace& space = *task.search.task.space;
    entry.setting = space.setting(space.arms()[tuned.outcome.arm]);
    entry.arm = task.text(plan_, tuned.outcome.arm);
    TableEvidence& evidence = entry.evidence;
    evidence.verdict = said.verdict;
    if (tuned.candidate != 0) evidence.candidate = task.text(plan_, tuned.candidate);
    if (evidence.default_us == 0)
      evidence.default_us = tuned.outcome.default_time.value_or(Micros{}).count();
    if (tuned.outcome.arm == 0) evidence.tuned_us = evidence.default_us;
    // A table that is judged was not searched: it says nothing of other settings.
    // Nor is more measuring what helps where the default missed what it is to reach.
    const bool missed = tuned.outcome.missed > 0 && evidence.default_us == 0;
    if (!said.flag.empty() && !keep_verdicts_ && !missed) entry.flags.emplace_back(said.flag);
    add_limits(tuned);
  }

  static bool is_lossy(const TuneTask& task, std::size_t arm) {
    return !task.runs.empty() && task.runs[arm].cell.collective == Collective::training &&
           !trains_as_one(training_spec(task.runs[arm].cell));
  }

  /// What the time that is left says of the workload and of Gloo.
  void add_limits(TunedTask& tuned) const {
    const Micros now{tuned.entry.evidence.tuned_us};
    const TuneTask& task = plan_.tasks[tuned.task];
    // Of a choice that loses something the lossless default is what may be saturated.
    const bool lossy = is_lossy(task, tuned.outcome.arm);
    const Micros lossless = lossy ? Micros{tuned.entry.evidence.default_us} : now;
    const Micros stated = plan_.options.allowed_time;
    const Micros allowed = stated.count() > 0 ? stated : evaluator_.allowed_time(tuned.task);
    if (!is_lossy(task, lossy ? 0 : tuned.outcome.arm) && lossless_saturated(lossless, allowed)) {
      tuned.entry.flags.emplace_back(kLosslessSaturated);
      if (lossy) tuned.helped_by = task.text(plan_, tuned.outcome.arm);
    }
    const auto& floor = task.search.gloo_floor;
    if (floor && now > *floor) tuned.entry.flags.emplace_back(kBelowFloor);
  }

  void log_finals(const TuningResult& result) {
    std::vector<DecisionInfo> rows;
    for (const TunedTask& tuned : result.tasks) {
      SearchStep step;
      step.step = tuned.outcome.evaluations;
      step.kind = "final";
      step.choice = {tuned.outcome.arm, 1, false};
      step.guard = tuned.outcome.guard;
      step.state = plan_.tasks[tuned.task].search.task.state;
      step.measured.trial.ok = tuned.entry.evidence.tuned_us > 0;
      step.measured.trial.time = Micros{tuned.entry.evidence.tuned_us};
      step.reference = Micros{tuned.entry.evidence.default_us};
      const TuneTask& task = plan_.tasks[tuned.task];
      DecisionInfo row = decision_of(plan_, task, task.search, step, 1);
      // What is said of the cell, and on how many of its settings that rests.
      json candidates = parsed_json(row.candidates_json);
      candidates["tried"] = tuned.outcome.tried;
      candidates["flags"] = tuned.entry.flags;
      row.candidates_json = candidates.dump();
      rows.push_back(std::move(row));
    }
    log_.add(tuning_, rows);
  }

  TunePlan& plan_;
  LaunchEvaluator& evaluator_;
  DecisionLog& log_;
  Console& console_;
  const TuningOptions& options_;
  std::vector<std::size_t> order_;  ///< place in the search -> task of the plan
  std::vector<SearchTask> searched_;
  std::int64_t tuning_ = 0;
  bool keep_verdicts_ = false;  ///< a table is judged, not fixed
};

}  // namespace

TuningResult tune_live(TunePlan& plan, LaunchEvaluator& evaluator, DecisionLog& log,
                       Console& console, const std::string& run_id, const TuningOptions& options) {
  return LiveTuning(plan, evaluator, log, console, options).go(run_id);
}

TuningResult apply_table(TunePlan& plan, LaunchEvaluator& evaluator, DecisionLog& log,
                         Console& console, const std::string& run_id, const TuningOptions& options,
                         const ConfigurationTable& table) {
  return LiveTuning(plan, evaluator, log, console, options).apply(run_id, table);
}

}  // namespace dynamiccl
