#include "tuner/nccl/online_learner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/vocabulary/error.hpp"
#include "tuner/export/export.hpp"
#include "tuner/job/launch_space.hpp"
#include "tuner/state/state_from_regime.hpp"

namespace dynamiccl {
namespace {

constexpr std::int64_t kMostAhead = 4096;
/// A trial is cut short when its calls take this many times the default's (GuardLimits says the
/// same of Gloo's).
constexpr double kFarTooSlow = 2.0;
constexpr std::uint32_t kFewCalls = 4;
/// Steps are waited for no longer than this: a job may have no rhythm any more.
constexpr std::int64_t kPatienceNs = 5'000'000'000;
/// Calls that have changed are a reason to search anew when the steps have changed so much.
constexpr double kChangedPace = 1.15;

/// Standard error of a median, a part of it.
double median_error(const StepReading& step) {
  return 1.2533 * step.spread /
         std::sqrt(static_cast<double>(std::max<std::size_t>(1, step.steps)));
}

/// What NCCL expects of the arms: differences alone count, so the default is its own best.
std::vector<double> predicted_log_us(const ActionSpace& space,
                                     const std::array<float, kPredictions>& predicted) {
  float best = -1;
  for (const float us : predicted)
    if (us > 0 && (best < 0 || us < best)) best = us;
  if (best <= 0) return {};
  std::vector<double> prior;
  for (const Action& action : space.arms()) {
    const CallCell cell = call_cell(space.setting(action));
    float us = best;
    if (cell.algorithm < 7 && cell.protocol < 3)
      us = predicted[std::size_t{cell.algorithm} * 3 + cell.protocol];
    // Ruled out: the plugin leaves such calls to NCCL.
    prior.push_back(std::log(static_cast<double>(us > 0 ? us : best)));
  }
  return prior;
}

}  // namespace

OnlineLearner::OnlineLearner(std::shared_ptr<Region> region, const LearnerOptions& options)
    : OnlineLearner(std::make_unique<Leader>(std::move(region)), options) {}

OnlineLearner::OnlineLearner(std::unique_ptr<TableLeader> leader, const LearnerOptions& options)
    : owned_leader_(std::move(leader)),
      leader_(*owned_leader_),
      options_(options),
      ahead_(options.ahead) {
  if (options.shared_agent == nullptr)
    own_agent_ = make_agent(options.agent, options.agent_options);
  agent_ = own_agent_ != nullptr ? own_agent_.get() : options.shared_agent;
  if (options_.author.agent.empty()) options_.author.agent = std::string(agent_->name());
  // Only what the plugin can change while the job runs.
  options_.space.scopes = {KnobScope::call};
  admitted_ = admit(options_.state) == GuardVerdict::pass && !options_.context.ina_active;
  take_over();
  round_began_ns_ = now_ns();
}

std::int64_t OnlineLearner::now_ns() const {
  return options_.now_ns ? options_.now_ns() : monotonic_ns();
}

void OnlineLearner::take_over() {
  const Proposal found = leader_.proposal();
  if (found.state == ProposalState::committed) {
    epoch_ = found.epoch;
    CallTable table;
    if (leader_.region().copy_table(found, table)) options_.start = table;
  }
  // Which table is in force after a proposal of an earlier leader failed, no word says.
  unknown_table_ = found.state == ProposalState::aborted && !found.start;
  table_ = best_table_ = options_.start;
}

std::optional<CellObservation> OnlineLearner::seen(const Cell& cell) const {
  const CellObservation observation = leader_.observe(cell.function, cell.bin);
  if (observation.calls == 0 || observation.epoch != epoch_) return std::nullopt;
  return observation;
}

OnlineLearner::Learning OnlineLearner::make_task(const Cell& cell) const {
  const Region& region = leader_.region();
  SpaceContext context = options_.context;
  context.backend = Backend::nccl;
  context.collective = collective_of(cell.function);
  context.ranks = static_cast<int>(region.ranks());
  context.nodes = static_cast<int>(region.header().nodes);
  context.size = Bytes(std::uint64_t{1} << cell.bin);
  context.nccl_plugin = true;
  Learning learning{TaskLoop(agent())};
  learning.task.key = {options_.regime,
                       {context.collective,
                        {static_cast<int>(cell.bin)},
                        context.ranks,
                        std::max(1, context.nodes),
                        Architecture::ring,
                        Backend::nccl}};
  learning.task.space = std::make_shared<ActionSpace>(make_space(context, options_.space));
  learning.task.state = options_.state;
  set_task(learning.task.state, learning.task.key.task, context.size, context.size);
  if (options_.predicted)
    if (const auto predicted = options_.predicted(cell.function, cell.bin))
      learning.task.prior_log_us = predicted_log_us(*learning.task.space, *predicted);
  // What the job was started with is a setting like any other, if the space has it.
  const CallCell start = options_.start.cells[cell.function][cell.bin];
  for (std::size_t a = 0; a < learning.task.space->arms().size() && !start.leaves_all(); ++a)
    if (call_cell(learning.task.space->setting(learning.task.space->arms()[a])) == start) {
      learning.proposed = {a, 1, false};
      learning.loop.put(learning.proposed);
    }
  return learning;
}

void OnlineLearner::find_tasks() {
  double all_us = 0;
  std::map<Cell, double> spent_us;
  for (std::size_t function = 0; function < kCallFunctions; ++function)
    for (std::size_t bin = 0; bin < kCallBins; ++bin)
      if (const auto observation = seen({function, bin})) {
        spent_us[{function, bin}] = observation->mean.count() * observation->calls;
        all_us += spent_us[{function, bin}];
      }
  for (const auto& [cell, us] : spent_us) {
    if (tasks_.contains(cell) || us < options_.least_share * all_us ||
        leader_.observe(cell.function, cell.bin).calls < options_.calls_per_trial)
      continue;
    Learning learning = make_task(cell);
    if (!admitted_ || learning.task.space->arms().size() < 2) {
      learning.closed = true;
      learning.guard = admitted_ ? GuardVerdict::pass : GuardVerdict::ina_passthrough;
    }
    tasks_.emplace(cell, std::move(learning));
  }
}

bool OnlineLearner::far_too_slow() const {
  return std::any_of(tasks_.begin(), tasks_.end(), [&](const auto& task) {
    const auto observation = seen(task.first);
    return task.second.loop.choice().arm != 0 && task.second.default_us > 0 && observation &&
           observation->calls >= kFewCalls &&
           observation->mean.count() > kFarTooSlow * task.second.default_us;
  });
}

bool OnlineLearner::round_measured() {
  bool any = false;
  bool all = true;
  for (const auto& [cell, learning] : tasks_) {
    const auto observation = seen(cell);
    const bool enough = observation && observation->calls >= options_.calls_per_trial;
    // A size that is not called any more holds nothing up: it has no calls at all in this epoch.
    any = any || enough;
    all = all && (enough || !observation);
  }
  if (!any) return false;
  if (far_too_slow()) return true;
  if (!all) return false;
  if (!options_.steps) return true;
  const auto reading = options_.steps(epoch_);
  return (reading && reading->steps >= options_.steps_per_trial) ||
         now_ns() - round_began_ns_ > kPatienceNs;
}

void OnlineLearner::note_step(const std::optional<StepReading>& step) {
  if (!step || step->steps < options_.steps_per_trial) return;
  const bool standard = table_ == CallTable{};
  if (standard && default_step_us_ == 0) default_step_us_ = step->step.count();
  // The best table's own time is its last one: a machine's pace drifts, and the luckiest of many
  // readings would make every later one look slow.
  if (best_step_us_ == 0 || table_ == best_table_ || step->step.count() < best_step_us_) {
    best_step_us_ = step->step.count();
    best_step_error_ = median_error(*step);
    best_table_ = table_;
  }
}

bool OnlineLearner::slower_than_best(const StepReading& step) const {
  if (step.steps < options_.steps_per_trial || best_step_us_ <= 0 || table_ == best_table_)
    return false;
  constexpr double kNoise = 0.03;
  const double noise = std::max(kNoise, 2 * std::hypot(median_error(step), best_step_error_));
  return step.step.count() > (1 + noise) * best_step_us_;
}

void OnlineLearner::record(const Learning& learning, const LoopStep& done, std::int64_t calls,
                           double us, const std::optional<StepReading>& step) {
  if (!options_.on_decision) return;
  const ActionSpace& space = *learning.task.space;
  DecisionRecord record;
  record.author = options_.author;
  record.task_key = learning.task.key.task.text();
  record.regime = options_.regime_id.empty() ? options_.regime : options_.regime_id;
  record.regime_name = options_.regime_name;
  record.step = done.step;
  record.kind = done.choice.arm == 0      ? "reference"
                : done.choice.exploratory ? "explore"
                                          : "exploit";
  record.epoch = epoch_;
  record.arm = space.text(space.arms()[done.choice.arm]);
  record.propensity = std::clamp(done.choice.propensity, 1e-12, 1.0);
  record.state = state_json(done.state);
  record.candidates = candidates_json(space);
  record.guard = name_of(learning.guard);
  record.asked = setting_json(space.setting(space.arms()[done.choice.arm]));
  record.calls = calls;
  if (us > 0) record.time_us = us;
  if (learning.default_us > 0) record.reference_us = learning.default_us;
  if (us > 0 && learning.default_us > 0) {
    StepOutcome outcome = outcome_of(done, Micros(us), Micros(learning.default_us));
    // Without a step, a call stands for it.
    const bool known = step && default_step_us_ > 0;
    if (known) outcome.step = step->step;
    if (known) outcome.reference_step = Micros(default_step_us_);
    outcome.fault = learning.guard == GuardVerdict::failed;
    const RewardTerms terms = reward(outcome, options_.weights);
    record.reward = terms.total();
    record.reward_terms = reward_json(terms);
  }
  options_.on_decision(record);
}

void OnlineLearner::learn_cell(const Cell& cell, Learning& learning,
                               const CellObservation& observation,
                               const std::optional<StepReading>& step, double slowdown) {
  const double us = observation.mean.count();
  if (learning.loop.choice().arm == 0) learning.default_us = us;
  learning.guard =
      judge_trial(true, Micros(us), Micros(learning.default_us), std::nullopt, options_.limits);
  const bool changed =
      !(table_.cells[cell.function][cell.bin] == best_table_.cells[cell.function][cell.bin]);
  // A call that is short by itself and lengthens the step is no gain.
  const double judged = changed ? us * slowdown : us;
  std::optional<Trial> learnt;
  if (!settled(learning)) learnt = Trial{true, Micros(judged)};
  std::optional<double> relative;
  if (learning.default_us > 0) relative = std::log(us / learning.default_us);
  record(learning, learning.loop.observe(learning.task, learnt, relative), observation.calls, us,
         step);
  learning.last_us = us;
}

void OnlineLearner::learn_round() {
  const std::optional<StepReading> step = options_.steps ? options_.steps(epoch_) : std::nullopt;
  const bool slower = step && slower_than_best(*step);
  const double slowdown = slower ? step->step.count() / best_step_us_ : 1;
  const bool early = far_too_slow();
  for (auto& [cell, learning] : tasks_) {
    const auto observation = seen(cell);
    if (observation && observation->calls >= (early ? kFewCalls : options_.calls_per_trial))
      learn_cell(cell, learning, *observation, step, slowdown);
  }
  note_step(step);
  ++rounds_;
  // The best that was seen stays, when what was learnt of calls ends in a slower step.
  if (slower && finished() && !(table_ == best_table_)) {
    forced_back_ = true;
    ++rolled_back_;
  }
}

bool OnlineLearner::settled(const Learning& learning) const {
  return learning.closed || (options_.most_rounds > 0 && rounds_ >= options_.most_rounds) ||
         learning.loop.finished(learning.task);
}

std::size_t OnlineLearner::final_arm(const Learning& learning) const {
  return learning.closed ? 0 : learning.loop.recommend(learning.task);
}

CallCell OnlineLearner::cell_of(const Learning& learning, std::size_t arm) const {
  const ActionSpace& space = *learning.task.space;
  return call_cell(space.setting(space.arms()[arm]));
}

void OnlineLearner::propose(const CallTable& table) {
  proposed_ = table;
  if (proposed_ == table_) {
    for (auto& [cell, learning] : tasks_) learning.loop.put(learning.proposed);
    return;
  }
  leader_.propose(proposed_, leader_.spread() + ahead_);
  proposing_ = true;
}

void OnlineLearner::propose_round() {
  using Clock = std::chrono::steady_clock;
  CallTable next = table_;
  for (auto& [cell, learning] : tasks_) {
    if (settled(learning)) {
      learning.proposed = {final_arm(learning), 1, false};
    } else {
      const auto begun = Clock::now();
      learning.proposed = learning.loop.propose(learning.task);
      choice_time_ =
          choice_time_ +
          Micros(std::chrono::duration<double, std::micro>(Clock::now() - begun).count());
      ++choices_;
    }
    next.cells[cell.function][cell.bin] = cell_of(learning, learning.proposed.arm);
  }
  if (forced_back_) next = best_table_;
  propose(next);
}

bool OnlineLearner::step() {
  const TableLeader::Progress progress = leader_.poll();
  if (progress == TableLeader::Progress::ended) return false;
  if (progress != TableLeader::Progress::free) return true;
  if (proposing_) {
    proposing_ = false;
    if (!leader_.committed()) {
      ++aborted_;
      ahead_ = std::min(2 * ahead_, kMostAhead);
      propose(proposed_);
      return true;
    }
    table_ = proposed_;
    epoch_ = leader_.proposal().epoch;
    for (auto& [cell, learning] : tasks_) learning.loop.put(learning.proposed);
    last_calls_ = leader_.furthest_call();
    round_began_ns_ = now_ns();
    return true;
  }
  if (unknown_table_) {
    unknown_table_ = false;
    proposed_ = CallTable{};
    leader_.propose(proposed_, leader_.spread() + ahead_);
    proposing_ = true;
    return true;
  }
  // The ranks agree by themselves on the table that they start with.
  if (epoch_ == 0 && leader_.committed()) epoch_ = leader_.proposal().epoch;
  tell_when_settled();
  judge_suspicion();
  if (proposing_) return true;
  if (finished() && rounds_ > 0) {
    find_tasks();
    if (finished()) return true;
  }
  find_tasks();
  if (tasks_.empty() || !round_measured()) return true;
  const bool waited = leader_.furthest_call() >= last_calls_ + options_.calls_per_trial;
  if (!waited && !far_too_slow()) return true;
  last_calls_ = leader_.furthest_call();
  learn_round();
  propose_round();
  return true;
}

void OnlineLearner::hear(std::size_t function, std::size_t bin, std::uint32_t epoch,
                         Micros latency) {
  const auto found = tasks_.find({function, bin});
  if (found == tasks_.end() || epoch != epoch_ || !finished()) return;
  Learning& learning = found->second;
  if (learning.heard_epoch != epoch) {
    learning.heard_epoch = epoch;
    learning.trigger.restart();
  }
  const TriggerState& now = learning.trigger.add(latency);
  learning.task.state.cusum_score = now.cusum_score;
  learning.task.state.reconstruction_error = now.reconstruction_error;
  learning.task.state.congestion = now.congestion;
  learning.task.state.interference = now.interference;
  if (!now.alarm) return;
  suspicion_ =
      fmt::format("{} takes {} than before, after {} calls of it", learning.task.key.task.text(),
                  now.interference > 0 ? "longer" : "less time", learning.trigger.calls());
  suspected_ns_ = now_ns();
  judge_suspicion();
}

bool OnlineLearner::steps_have_changed() const {
  // A job without steps, or which has lost its rhythm, is judged by its calls alone.
  if (!options_.recent_step || !options_.steps || !options_.steps(epoch_)) return true;
  if (settled_step_us_ <= 0) return false;
  const std::optional<Micros> now = options_.recent_step(epoch_);
  if (!now) return true;
  const double pace = now->count() / settled_step_us_;
  return std::max(pace, 1 / pace) >= kChangedPace;
}

void OnlineLearner::judge_suspicion() {
  if (suspicion_.empty()) return;
  if (!steps_have_changed()) {
    constexpr double kStepsToShow = 10;
    const double waited_us = static_cast<double>(now_ns() - suspected_ns_) / 1e3;
    if (waited_us > kStepsToShow * options_.steps(epoch_)->step.count()) suspicion_.clear();
    return;
  }
  ++alarms_;
  if (options_.on_event) options_.on_event(suspicion_ + ": settings are searched anew");
  reopen();
}

void OnlineLearner::tell_when_settled() {
  const bool settled = finished();
  if (settled && !told_settled_ && options_.on_event)
    options_.on_event(
        fmt::format("settled after {} rounds: {} sizes, table {}", rounds_, tasks_.size(), epoch_));
  told_settled_ = settled;
  if (!settled) settled_step_us_ = 0;
  if (settled && settled_step_us_ <= 0 && options_.recent_step)
    if (const auto step = options_.recent_step(epoch_)) settled_step_us_ = step->count();
}

void OnlineLearner::reopen() {
  forced_back_ = false;
  default_step_us_ = best_step_us_ = best_step_error_ = settled_step_us_ = 0;
  suspicion_.clear();
  rounds_ = 0;
  for (auto& [cell, learning] : tasks_) {
    if (learning.closed) continue;
    learning.loop.reopen(learning.task);
    learning.default_us = 0;
    learning.proposed = {0, 1, false};
  }
  // What is compared with comes first: the default as it is now.
  if (leader_.poll() == TableLeader::Progress::free && !proposing_) propose(CallTable{});
}

bool OnlineLearner::finished() const {
  if (tasks_.empty() || proposing_) return false;
  if (forced_back_) return table_ == best_table_;
  return std::all_of(tasks_.begin(), tasks_.end(), [&](const auto& task) {
    return settled(task.second) && task.second.loop.last_arm() == final_arm(task.second);
  });
}

std::vector<TableEntry> OnlineLearner::entries() const {
  std::vector<TableEntry> entries;
  for (const auto& [cell, learning] : tasks_) {
    TableEntry entry;
    entry.key = learning.task.key;
    entry.size = entry.key.task.bin.first();
    const ActionSpace& space = *learning.task.space;
    std::size_t arm = final_arm(learning);
    // What the step took back is the best table's.
    for (std::size_t a = 0; forced_back_ && a < space.arms().size(); ++a)
      if (cell_of(learning, a) == best_table_.cells[cell.function][cell.bin]) arm = a;
    entry.setting = space.setting(space.arms()[arm]);
    entry.arm = space.text(space.arms()[arm]);
    if (learning.guard != GuardVerdict::pass) entry.flags.emplace_back(name_of(learning.guard));
    entry.evidence.default_us = learning.default_us;
    entry.evidence.tuned_us = learning.last_us;
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace dynamiccl
