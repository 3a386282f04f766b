#include "tuner/online/call_driver.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "core/vocabulary/error.hpp"
#include "tuner/export/export.hpp"
#include "tuner/job/launch_space.hpp"
#include "tuner/state/state_from_regime.hpp"

namespace dynamiccl {
namespace {

constexpr std::int64_t kMostAhead = 4096;
/// Sizes that take less than this share of the collectives' time are left alone.
constexpr double kLeastShare = 0.01;
/// A size whose calls are seen for the first time is worth a task after so many of them.
constexpr std::uint32_t kFewCalls = 3;
/// Samples of the setting in force before the first other one is tried.
constexpr std::size_t kFirstSamples = 4;

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

CallDriver::CallDriver(std::shared_ptr<Region> region, const LearnerOptions& options)
    : leader_(std::move(region)), options_(options) {
  if (options.shared_agent == nullptr)
    own_agent_ = make_agent(options.agent, options.agent_options);
  agent_ = own_agent_ != nullptr ? own_agent_.get() : options.shared_agent;
  if (options_.author.agent.empty()) options_.author.agent = std::string(agent_->name());
  // Only what the plugin can change while the job runs.
  options_.space.scopes = {KnobScope::call};
  admitted_ = admit(options_.state) == GuardVerdict::pass && !options_.context.ina_active;
  take_over();
  began_ns_ = search_ns_ = now_ns();
}

std::int64_t CallDriver::now_ns() const {
  return options_.now_ns ? options_.now_ns() : monotonic_ns();
}

void CallDriver::take_over() {
  const Proposal found = leader_.proposal();
  if (found.state == ProposalState::committed) {
    epoch_ = found.epoch;
    CallTable table;
    if (leader_.region().copy_table(found, table)) options_.start = table;
  }
  // Which table is in force after a proposal of an earlier leader failed, no word says.
  unknown_table_ = found.state == ProposalState::aborted && !found.start;
  table_ = base_ = options_.start;
}

std::optional<CellObservation> CallDriver::seen(const Cell& cell) const {
  const CellObservation observation = leader_.observe(cell.function, cell.bin);
  if (observation.calls == 0 || observation.epoch != epoch_) return std::nullopt;
  return observation;
}

CallDriver::Learning CallDriver::make_task(const Cell& cell) {
  const Region& region = leader_.region();
  SpaceContext context = options_.context;
  context.backend = Backend::nccl;
  context.collective = collective_of(cell.function);
  context.ranks = static_cast<int>(region.ranks());
  context.nodes = static_cast<int>(region.header().nodes);
  context.size = Bytes(std::uint64_t{1} << cell.bin);
  context.nccl_plugin = true;
  Learning learning{TaskLoop(agent())};
  learning.task.key = {surroundings(),
                       {context.collective,
                        {static_cast<int>(cell.bin)},
                        context.ranks,
                        std::max(1, context.nodes),
                        Architecture::ring,
                        Backend::nccl}};
  learning.task.space = std::make_shared<ActionSpace>(make_space(context, options_.space));
  learning.task.state = options_.state;
  set_task(learning.task.state, learning.task.key.task, context.size, context.size);
  // hear() tells what the trigger sees.
  learning.task.state.watched = true;
  if (options_.predicted)
    if (const auto predicted = options_.predicted(cell.function, cell.bin))
      learning.task.prior_log_us = predicted_log_us(*learning.task.space, *predicted);
  learning.machine.rules = {.references = kFirstSamples,
                            .most = static_cast<std::size_t>(options_.most_rounds),
                            .again = kSamplesAgain,
                            .at_once = TrialRules{.most_calls = options_.calls_per_trial}};
  // What the job was started with is a setting like any other, if the space has it.
  const CallCell start = options_.start.cells[cell.function][cell.bin];
  for (std::size_t a = 0; a < learning.task.space->arms().size() && !start.leaves_all(); ++a)
    if (call_cell(learning.task.space->setting(learning.task.space->arms()[a])) == start) {
      learning.machine.kept = a;
      learning.loop.put({a, 1, false});
    }
  if (options_.gloo_floor) learning.floor = options_.gloo_floor(cell.function, cell.bin);
  learning.heard_ns = now_ns();
  tell(learning, {TaskEvent::search});
  return learning;
}

void CallDriver::find_tasks() {
  double all_us = 0;
  std::map<Cell, double> spent_us;
  for (std::size_t function = 0; function < kCallFunctions; ++function)
    for (std::size_t bin = 0; bin < kCallBins; ++bin)
      if (const auto observation = seen({function, bin})) {
        spent_us[{function, bin}] = observation->mean.count() * observation->calls;
        all_us += spent_us[{function, bin}];
      }
  for (const auto& [cell, us] : spent_us) {
    if (const auto known = tasks_.find(cell); known != tasks_.end()) {
      if (known->second.machine.stage == TaskStage::settled) known->second.share = us / all_us;
      continue;
    }
    if (us < kLeastShare * all_us || leader_.observe(cell.function, cell.bin).calls < kFewCalls)
      continue;
    Learning learning = make_task(cell);
    learning.share = us / all_us;
    if (!admitted_ || learning.task.space->arms().size() < 2) {
      learning.closed = true;
      learning.guard = admitted_ ? GuardVerdict::pass : GuardVerdict::ina_passthrough;
    }
    tasks_.emplace(cell, std::move(learning));
    leave_check();
  }
}

void CallDriver::tell(Learning& learning, const TaskEvent& event, double propensity,
                      bool exploratory) {
  TaskState& machine = learning.machine;
  const TaskState before = machine;
  machine = next(std::move(machine), event).first;
  // A check of the whole table puts other settings in force while its sizes are settled.
  if (event.kind != TaskEvent::measured || machine.running != before.running)
    learning.proposed = {machine.running, propensity, exploratory};
  const bool ended = before.stage == TaskStage::trying && machine.stage != TaskStage::trying;
  const bool judged = event.kind == TaskEvent::measured || event.kind == TaskEvent::stop;
  if (ended && judged && machine.trial.size() > 0)
    learn(learning, learning.level + machine.trial.level() - before.reference.level(),
          static_cast<std::int64_t>(machine.trial.calls()));
  if (machine.kept == before.kept || !learning.known.contains(machine.kept)) return;
  learning.level = learning.known.at(machine.kept);
  learning.last_us = std::exp(learning.level);
}

void CallDriver::take(Learning& learning, Micros mean, std::uint32_t calls) {
  if (!(mean.count() > 0)) return;
  const std::size_t arm = learning.loop.choice().arm;
  if (arm != learning.machine.kept) {
    // Calls go on under what is tried until all ranks have left it, and the first is summed up
    // nowhere: they cost as well.
    const std::uint32_t paid = calls + (learning.machine.trial.size() == 0 ? 1 : 0);
    learning.trying_us += (mean.count() - std::exp(learning.machine.reference.level())) * paid;
  } else {
    count_lost(learning);
  }
  tell(learning, {TaskEvent::measured, arm, mean.count(), calls});
}

void CallDriver::count_lost(Learning& learning) {
  const double lost_us = std::max(0.0, std::exchange(learning.trying_us, 0));
  learning.lost_us += lost_us;
  lost_us_ += lost_us;
}

void CallDriver::take_samples() {
  // Calls in a row that are short are one sample.
  constexpr std::uint32_t kManyCalls = 8;
  constexpr double kLongUs = 1000;
  for (auto& [cell, learning] : tasks_) {
    const CellObservation now = leader_.observe(cell.function, cell.bin);
    if (now.epoch != epoch_ || now.calls == 0) continue;
    if (learning.read_epoch != epoch_ || now.calls < learning.read_calls) {
      learning.read_epoch = epoch_;
      learning.read_calls = learning.open_calls = 0;
      learning.read_us = learning.open_us = 0;
    }
    const std::uint32_t fresh = now.calls - learning.read_calls;
    const double all_us = now.mean.count() * now.calls;
    learning.open_calls += fresh;
    if (fresh > 0) {
      learning.open_us += all_us - learning.read_us;
      learning.heard_ns = now_ns();
    }
    learning.read_calls = now.calls;
    learning.read_us = fresh > 0 ? all_us : learning.read_us;
    if (learning.open_calls == 0) continue;
    const Micros mean(learning.open_us / learning.open_calls);
    if (fresh > 0 && learning.open_calls < kManyCalls && mean.count() < kLongUs) continue;
    take(learning, mean, learning.open_calls);
    learning.open_calls = 0;
    learning.open_us = 0;
  }
}

std::optional<StepReading> CallDriver::reading() const {
  return options_.steps ? options_.steps(epoch_) : std::nullopt;
}

bool CallDriver::base_known() {
  if (base_step_ || !options_.steps || !(table_ == base_)) return true;
  constexpr std::size_t kSteps = 3;
  if (waited_for(kSteps, search_ns_)) return true;
  auto step = reading();
  if (!step || step->steps < kSteps) return false;
  // What went before the change that the search is for says nothing.
  if (alarms_ > 0 && options_.recent_step)
    if (const auto recent = options_.recent_step(epoch_)) *step = {5, *recent, step->spread};
  base_step_ = step;
  return true;
}

bool CallDriver::may_try(const Learning& learning) const {
  if (options_.learn_cost <= 0) return true;
  constexpr double kUnknownHorizonUs = 20e6;
  const double horizon_us =
      base_step_ ? static_cast<double>(options_.least_horizon) * base_step_->step.count()
                 : kUnknownHorizonUs;
  const double now = static_cast<double>(now_ns());
  const double lasted_us = (now - static_cast<double>(began_ns_)) / 1e3;
  const double searched_us = (now - static_cast<double>(search_ns_)) / 1e3;
  // After a change there is less to find: what was best before is seldom far from the best now. Of
  // a size that is first called after it nothing is known.
  const double part_left = changes_ > 0 && learning.searched ? 0.5 : 1.0;
  const double allowed_us = part_left * options_.learn_cost * std::max(searched_us, horizon_us);
  double lost_us = 0;
  for (const auto& [cell, other] : tasks_) lost_us += other.lost_us;
  // The sizes that matter for the step may cost the most; none takes it all.
  const double part = (learning.share + 1 / static_cast<double>(tasks_.size())) / 2;
  return lost_us < allowed_us && learning.lost_us < allowed_us * std::max(part, learning.share) &&
         lost_us_ < options_.learn_cost * std::max(lasted_us, horizon_us);
}

void CallDriver::record(const Learning& learning, const LoopStep& done, std::int64_t calls,
                        double us) {
  if (!options_.on_decision) return;
  DecisionRecord record = record_of(learning.task, done.choice, done.state);
  record.author = options_.author;
  record.regime = options_.regime_id.empty() ? options_.regime : options_.regime_id;
  record.regime_name = options_.regime_name;
  record.step = done.step;
  record.kind = done.choice.arm == 0      ? "reference"
                : done.choice.exploratory ? "explore"
                                          : "exploit";
  record.epoch = epoch_;
  record.guard = name_of(learning.guard);
  record.calls = calls;
  if (us > 0) record.time_us = us;
  if (learning.default_us > 0) record.reference_us = learning.default_us;
  if (us > 0 && learning.default_us > 0) {
    StepOutcome outcome = outcome_of(done, Micros(us), Micros(learning.default_us));
    // A trial is shorter than a step: its calls stand for it.
    outcome.fault = learning.guard == GuardVerdict::failed;
    const RewardTerms terms = reward(outcome);
    record.reward = terms.total();
    record.reward_terms = reward_json(terms);
  }
  options_.on_decision(record);
}

void CallDriver::learn(Learning& learning, double log_us, std::int64_t calls) {
  const std::size_t arm = learning.loop.choice().arm;
  const double us = std::exp(log_us);
  learning.known[arm] = log_us;
  if (arm == 0) learning.default_us = us;
  if (arm == learning.machine.kept) {
    learning.level = log_us;
    learning.last_us = us;
  }
  // The library's own choice is what a guard falls back on: it is recorded, not judged.
  learning.guard = judge_trial(true, Micros(us), Micros(learning.default_us),
                               arm != 0 ? learning.floor : std::nullopt);
  std::optional<double> relative;
  if (learning.default_us > 0) relative = std::log(us / learning.default_us);
  record(learning, learning.loop.observe(learning.task, Trial{true, Micros(us)}, relative), calls,
         us);
}

void CallDriver::settle(Learning& learning) {
  const bool asked = learning.machine.stage == TaskStage::asking;
  tell(learning, {asked ? TaskEvent::finished : TaskEvent::close, learning.machine.kept});
  learning.searched = true;
  if (learning.closed) return;
  // Of what is in force, whatever was said of the last one that was tried.
  learning.guard =
      learning.below_floor && learning.machine.kept == 0
          ? GuardVerdict::above_gloo_floor
          : judge_trial(true, Micros(std::max(learning.last_us, 1e-3)), Micros(learning.default_us),
                        learning.machine.kept != 0 ? learning.floor : std::nullopt);
}

void CallDriver::begin_trial(Learning& learning, const Choice& choice) {
  learning.trying_us = 0;
  learning.heard_ns = now_ns();
  ++rounds_;
  tell(learning, {TaskEvent::chosen, choice.arm}, choice.propensity, choice.exploratory);
}

void CallDriver::revert(Learning& learning, std::size_t arm) {
  learning.heard_ns = now_ns();
  tell(learning, {TaskEvent::revert, arm});
}

void CallDriver::answer(Learning& learning) {
  const TaskState& machine = learning.machine;
  const auto calls = static_cast<std::int64_t>(machine.reference.calls());
  if (!learning.known.contains(machine.kept)) {
    learning.level = machine.reference.level();
    learn(learning, learning.level, calls);
  }
  if (learning.closed) return settle(learning);
  if (hold_to_floor(learning, Micros(learning.last_us)) || !base_known()) return;
  if (is_spent(machine) || !agent().explores() || !may_try(learning)) return settle(learning);
  // Kinds differ most: what they are worth is known first. After an alarm the agent alone decides.
  const bool first = !learning.searched;
  if (const auto kind = first ? unseen_kind(learning) : std::nullopt)
    return begin_trial(learning, {*kind, 1, true});
  if (learning.loop.finished(learning.task)) {
    // What an agent does not believe in is seen once, too: while the job runs anyway, that costs
    // little, and the best of a kind may surprise.
    if (const auto left = first ? unseen(learning) : std::nullopt)
      return begin_trial(learning, {*left, 1, true});
    return settle(learning);
  }
  const auto begun = std::chrono::steady_clock::now();
  const Choice choice = learning.loop.propose(learning.task);
  choice_time_ =
      choice_time_ +
      Micros(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begun)
                 .count());
  ++choices_;
  if (choice.arm != machine.kept) return begin_trial(learning, choice);
  // Another look at what is in force costs nothing.
  learn(learning, learning.level + machine.reference.newest(1) - machine.reference.level(), calls);
  tell(learning, {TaskEvent::chosen, choice.arm});
}

void CallDriver::advance(Learning& learning) {
  if (learning.machine.stage == TaskStage::settled) return watch_floor(learning);
  if (learning.loop.choice().arm != learning.machine.running) return;
  // A size that is not called any more holds nothing up; some are called once a step.
  if (waited_for(kSilentSteps, learning.heard_ns)) {
    tell(learning, {TaskEvent::stop});
    if (learning.machine.stage == TaskStage::settled) settle(learning);
  } else if (learning.machine.stage == TaskStage::asking) {
    answer(learning);
  }
}

CallCell CallDriver::cell_of(const Learning& learning, std::size_t arm) const {
  const ActionSpace& space = *learning.task.space;
  return call_cell(space.setting(space.arms()[arm]));
}

std::size_t CallDriver::arm_of(const Learning& learning, const CallCell& cell) const {
  for (std::size_t a = 0; a < learning.task.space->arms().size(); ++a)
    if (cell_of(learning, a) == cell) return a;
  return 0;
}

void CallDriver::propose(const CallTable& table) {
  proposed_ = table;
  if (proposed_ == table_) {
    for (auto& [cell, learning] : tasks_) learning.loop.put(learning.proposed);
    return;
  }
  ask_ranks();
}

void CallDriver::ask_ranks() {
  leader_.propose(proposed_, leader_.spread() + ahead_);
  proposing_ = true;
}

void CallDriver::propose_wanted() {
  CallTable next = table_;
  for (auto& [cell, learning] : tasks_) {
    learning.under_way = learning.proposed;
    next.cells[cell.function][cell.bin] = cell_of(learning, learning.proposed.arm);
  }
  propose(next);
}

void CallDriver::finish_proposal() {
  proposing_ = false;
  if (!leader_.committed()) {
    ++aborted_;
    ahead_ = std::min(2 * ahead_, kMostAhead);
    // Even where it is what the learner takes for the table in force: it may not be.
    return ask_ranks();
  }
  table_ = proposed_;
  epoch_ = leader_.proposal().epoch;
  for (auto& [cell, learning] : tasks_) learning.loop.put(learning.under_way);
}

bool CallDriver::all_settled() const {
  return !tasks_.empty() && std::all_of(tasks_.begin(), tasks_.end(), [](const auto& task) {
    return task.second.machine.stage == TaskStage::settled;
  });
}

bool CallDriver::step() {
  const Leader::Progress progress = leader_.poll();
  if (progress == Leader::Progress::ended) return false;
  take_samples();
  if (progress != Leader::Progress::free) return true;
  if (proposing_) {
    finish_proposal();
    return true;
  }
  if (unknown_table_) {
    unknown_table_ = false;
    proposed_ = options_.start;
    ask_ranks();
    return true;
  }
  // The ranks agree by themselves on the table that they start with.
  if (epoch_ == 0 && leader_.committed()) {
    epoch_ = leader_.proposal().epoch;
    // They may have left alone the one that they were given: it is made for another place.
    CallTable table;
    if (tasks_.empty() && leader_.region().copy_table(leader_.proposal(), table))
      table_ = base_ = options_.start = table;
  }
  tell_when_settled();
  judge_suspicion();
  if (proposing_) return true;
  find_tasks();
  if (tasks_.empty()) return true;
  if (restoring_)
    see_restored();
  else
    for (auto& [cell, learning] : tasks_) advance(learning);
  if (check_ != Check::old) propose_wanted();
  if (!proposing_ && all_settled()) check_step();
  return true;
}

void CallDriver::tell_when_settled() {
  const bool settled = finished();
  if (settled && !told_settled_ && options_.on_event)
    options_.on_event(fmt::format(
        "settled after {} settings: {} sizes, table {}, {:.0f} ms lost by trying so far", rounds_,
        tasks_.size(), epoch_, lost_us_ / 1e3));
  if (settled && !told_settled_) {
    settled_ = Settlement{table_, {}};
    for (const auto& [cell, learning] : tasks_)
      if (learning.machine.reference.size() > 0)
        settled_->level[cell] = learning.machine.reference.level();
  }
  told_settled_ = settled;
  if (!settled) settled_step_us_ = 0;
  if (settled && settled_step_us_ <= 0 && options_.recent_step)
    if (const auto step = options_.recent_step(epoch_)) settled_step_us_ = step->count();
}

bool CallDriver::finished() const {
  return !tasks_.empty() && !proposing_ && check_ == Check::done && all_settled();
}

std::vector<TableEntry> CallDriver::entries() const {
  std::vector<TableEntry> entries;
  for (const auto& [cell, learning] : tasks_) {
    TableEntry entry;
    entry.key = learning.task.key;
    entry.key.regime = options_.regime;
    entry.size = entry.key.task.bin.first();
    const ActionSpace& space = *learning.task.space;
    const std::size_t arm = learning.machine.kept;
    entry.setting = space.setting(space.arms()[arm]);
    entry.arm = space.text(space.arms()[arm]);
    if (learning.guard != GuardVerdict::pass) entry.flags.emplace_back(name_of(learning.guard));
    if (learning.floor && learning.last_us > GuardLimits{}.sanity_floor * learning.floor->count())
      entry.flags.emplace_back(kBelowFloor);
    entry.evidence.default_us = learning.default_us;
    entry.evidence.tuned_us = learning.last_us;
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace dynamiccl
