#include "tuner/search/search.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/statistics/statistics.hpp"
#include "tuner/action/spaces.hpp"
#include "tuner/agents/task_loop.hpp"
#include "tuner/state/state_from_regime.hpp"

namespace dynamiccl {
namespace {

/// How a task stands in the search.
struct Progress {
  TaskLoop loop;
  SearchOutcome outcome{};
  std::map<std::size_t, std::vector<double>> times{};  ///< by arm
  std::set<std::size_t> tried{};                       ///< arms, failed ones too
  std::set<std::size_t> missed{};                      ///< arms, whatever their other launches did
  int faults = 0;
  bool open = true;
};

class Searcher {
 public:
  Searcher(Agent& agent, std::vector<SearchTask>& tasks, const Evaluate& evaluate,
           const SearchOptions& options, const std::function<void(const SearchStep&)>& on_step)
      : agent_(agent),
        tasks_(tasks),
        evaluate_(evaluate),
        options_(options),
        on_step_(on_step),
        progress_(tasks.size(), Progress{TaskLoop(agent)}) {}

  std::vector<SearchOutcome> run() {
    const std::size_t width = options_.in_flight == 0 ? tasks_.size() : options_.in_flight;
    if (agent_.plans()) {
      while (!stopped_ && planned_round(width)) {
      }
    } else {
      measure_references();
      while (!stopped_ && round()) {
      }
    }
    std::vector<SearchOutcome> outcomes;
    for (std::size_t t = 0; t < tasks_.size(); ++t) outcomes.push_back(conclude(t));
    return outcomes;
  }

 private:
  [[nodiscard]] bool spent_by(std::size_t asks) const {
    return options_.max_evaluations != 0 &&
           evaluations_ + static_cast<int>(asks) >= options_.max_evaluations;
  }

  /// The reference of every reward; also tells in which regime a task is.
  void measure_references() {
    std::vector<Ask> asks;
    for (std::size_t t = 0; t < tasks_.size() && !spent_by(asks.size()); ++t) {
      progress_[t].loop.put({0, 1, false});
      asks.push_back({t, 0});
    }
    if (!asks.empty()) measure(asks, "reference");
  }

  /// @returns false when nothing is left to ask
  bool round() {
    std::vector<Ask> asks;
    for (std::size_t t = 0; t < tasks_.size() && !spent_by(asks.size()); ++t) {
      const Task& task = tasks_[t].task;
      if (!progress_[t].open || progress_[t].loop.finished(task)) continue;
      asks.push_back({t, progress_[t].loop.next(task).arm});
    }
    if (!asks.empty()) measure(asks, "explore");
    return !asks.empty();
  }

  /// One round of an agent that says itself where to measure.
  /// @returns false when nothing is left to ask
  bool planned_round(std::size_t width) {
    std::vector<std::size_t> open;
    std::vector<const Task*> shown;
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
      const bool choice = tasks_[t].task.space->arms().size() > 1;
      if (!choice || !progress_[t].open || admit(tasks_[t].task.state) != GuardVerdict::pass)
        continue;
      open.push_back(t);
      shown.push_back(&tasks_[t].task);
    }
    if (options_.max_evaluations != 0)
      width = std::min(
          width, static_cast<std::size_t>(std::max(0, options_.max_evaluations - evaluations_)));
    if (open.empty() || width == 0) return false;
    std::vector<Ask> asks;
    for (const PlannedChoice& proposal : agent_.plan(shown, width)) {
      progress_[open[proposal.task]].loop.put(proposal.choice);
      asks.push_back({open[proposal.task], proposal.choice.arm});
    }
    if (asks.empty()) return false;
    measure(asks, "explore");
    return true;
  }

  void measure(const std::vector<Ask>& asks, const char* kind) {
    const std::vector<Measured> results = evaluate_(asks);
    if (results.size() != asks.size()) {
      stopped_ = true;
      return;
    }
    for (std::size_t i = 0; i < asks.size(); ++i) digest(asks[i], results[i], kind);
  }

  void digest(const Ask& ask, const Measured& measured, const char* kind) {
    SearchTask& owner = tasks_[ask.task];
    Progress& progress = progress_[ask.task];
    if (progress.loop.steps() == 0) meet(ask.task, measured);
    ++evaluations_;
    ++progress.outcome.evaluations;
    progress.tried.insert(ask.arm);
    if (measured.missed) progress.missed.insert(ask.arm);
    if (measured.trial.ok && measured.trial.time.count() > 0)
      progress.times[ask.arm].push_back(measured.trial.time.count());
    if (ask.arm == 0) progress.outcome.default_time = typical(progress, 0);
    const auto reference = progress.outcome.default_time;
    std::optional<double> relative;
    if (reference && measured.trial.ok)
      relative = std::log(measured.trial.time.count() / reference->count());
    Trial trial = measured.trial;
    trial.launch = measured.origin;
    std::optional<RewardTerms> terms;
    if (reference) terms = reward_of(progress.loop.in_force(owner.task), trial, *reference);
    const LoopStep done = progress.loop.observe(owner.task, trial, relative);
    SearchStep step;
    step.task = ask.task;
    step.step = done.step;
    step.choice = done.choice;
    step.kind = step.choice.exploratory ? kind : ask.arm != 0 ? "exploit" : "reference";
    step.measured = measured;
    step.state = done.state;
    step.reference = reference;
    step.guard = judge_trial(measured.trial.ok, measured.trial.time, reference.value_or(Micros{}),
                             owner.gloo_floor, options_.limits);
    if ((ask.arm == 0 || step.step == 0) && step.guard != GuardVerdict::failed) {
      const GuardVerdict admitted = admit(done.state);
      if (ask.arm == 0 || admitted != GuardVerdict::pass) step.guard = admitted;
    }
    step.reward = terms;
    if (step.guard == GuardVerdict::failed && !measured.missed) ++progress.faults;
    close_when_needed(ask, step.guard, progress);
    if (on_step_) on_step_(step);
  }

  /// The first launch of a task says where it is, and where those are that were not met yet.
  void meet(std::size_t met, const Measured& measured) {
    const RegimeKey before = tasks_[met].task.key;
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
      const RegimeKey& key = tasks_[t].task.key;
      const bool alike = progress_[t].loop.steps() == 0 && key.regime == before.regime &&
                         key.task.backend == before.task.backend &&
                         key.task.architecture == before.task.architecture &&
                         key.task.nodes == before.task.nodes;
      if (t == met || (agent_.plans() && alike)) place(tasks_[t], measured);
    }
  }

  static void place(SearchTask& owner, const Measured& measured) {
    if (!measured.regime_id.empty()) owner.task.key.regime = measured.regime_id;
    const State before = owner.task.state;
    if (measured.regime.is_object())
      owner.task.state = state_from_regime(measured.regime, owner.nodes);
    set_task(owner.task.state, owner.task.key.task, owner.size, owner.size);
    // Whoever made the task knows what its ways to run encode, and whose calls these are; a regime
    // does not.
    if (before.nominal_size) {
      owner.task.state.nominal_size = before.nominal_size;
      owner.task.state.effective_size = before.effective_size;
    }
    owner.task.state.parallelism = before.parallelism;
    if (is_flat(measured.regime)) discount_hierarchies(owner.task);
  }

  static bool is_flat(const nlohmann::json& regime) {
    const nlohmann::json::json_pointer place("/features/is_flat_interconnect");
    return regime.is_object() && regime.contains(place) && regime.at(place) == true;
  }

  /// Where links between nodes are as fast as those inside, levels add steps and save nothing.
  static void discount_hierarchies(Task& task) {
    const auto& arms = task.space->arms();
    for (std::size_t a = 1; a < task.prior_log_us.size(); ++a)
      if (is_hierarchical(*task.space, arms[a]))
        task.prior_log_us[a] = task.prior_log_us[0] + kHierarchyGain;
  }

  RewardTerms reward_of(const LoopStep& step, const Trial& trial, Micros reference) const {
    StepOutcome outcome = outcome_of(step, trial.ok ? trial.time : reference, reference);
    outcome.fault = !trial.ok;
    return reward(outcome, options_.weights);
  }

  void close_when_needed(const Ask& ask, GuardVerdict guard, Progress& progress) const {
    const bool forbidden =
        guard == GuardVerdict::ina_passthrough || guard == GuardVerdict::no_actuator;
    // Without its default a task has nothing to be compared with.
    const bool no_reference = ask.arm == 0 && !progress.outcome.default_time;
    if (forbidden || no_reference || progress.faults >= options_.limits.faults) {
      progress.open = false;
      progress.outcome.guard = forbidden ? guard : GuardVerdict::failed;
    }
  }

  static std::optional<Micros> typical(const Progress& progress, std::size_t arm) {
    const auto found = progress.times.find(arm);
    if (found == progress.times.end()) return std::nullopt;
    return Micros{median(found->second)};
  }

  static std::size_t fastest_other(const Progress& progress) {
    std::size_t best = 0;
    double best_us = INFINITY;
    for (const auto& [arm, times] : progress.times)
      if (arm != 0 && median(times) < best_us) {
        best = arm;
        best_us = median(times);
      }
    return best;
  }

  /// The agent's recommendation, unless a guard takes it back.
  SearchOutcome conclude(std::size_t t) {
    Progress& progress = progress_[t];
    SearchOutcome& outcome = progress.outcome;
    outcome.tried = progress.tried.size();
    outcome.challenger = fastest_other(progress);
    if (outcome.challenger != 0) outcome.challenger_time = typical(progress, outcome.challenger);
    outcome.missed = static_cast<std::size_t>(
        std::count_if(progress.missed.begin(), progress.missed.end(),
                      [&](std::size_t arm) { return !progress.times.contains(arm); }));
    const bool unknown = progress.loop.steps() == 0 &&
                         (!agent_.plans() || admit(tasks_[t].task.state) != GuardVerdict::pass);
    // A task with one arm may never have been measured; why it has one is known.
    if (unknown) outcome.guard = admit(tasks_[t].task.state);
    if (unknown || outcome.guard != GuardVerdict::pass) {
      outcome.best_time = outcome.default_time;
      return outcome;
    }
    outcome.arm = progress.loop.recommend(tasks_[t].task);
    outcome.best_time = typical(progress, outcome.arm);
    if (!outcome.best_time && progress.missed.contains(outcome.arm)) outcome.arm = 0;
    if (outcome.arm == 0 || !outcome.best_time) return outcome;
    outcome.guard = judge_trial(true, *outcome.best_time, outcome.default_time.value_or(Micros{}),
                                tasks_[t].gloo_floor, options_.limits);
    if (outcome.guard != GuardVerdict::pass) {
      outcome.arm = 0;
      outcome.best_time = outcome.default_time;
    }
    return outcome;
  }

  Agent& agent_;
  std::vector<SearchTask>& tasks_;
  const Evaluate& evaluate_;
  const SearchOptions& options_;
  const std::function<void(const SearchStep&)>& on_step_;
  std::vector<Progress> progress_;
  int evaluations_ = 0;
  bool stopped_ = false;
};

}  // namespace

std::vector<SearchOutcome> search(Agent& agent, std::vector<SearchTask>& tasks,
                                  const Evaluate& evaluate, const SearchOptions& options,
                                  const std::function<void(const SearchStep&)>& on_step) {
  return Searcher(agent, tasks, evaluate, options, on_step).run();
}

}  // namespace dynamiccl
