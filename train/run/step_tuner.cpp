#include "train/run/step_tuner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/statistics/descriptive.hpp"
#include "core/vocabulary/backend.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/wire/decisions_file.hpp"
#include "profiles/detect/facts.hpp"
#include "profiles/detect/regime.hpp"
#include "train/observe/channel_share.hpp"
#include "tuner/action/spaces.hpp"
#include "tuner/guards/guards.hpp"
#include "tuner/job/step_trials.hpp"
#include "tuner/state/state_from_regime.hpp"
#include "tuner/state/state_from_training.hpp"
#include "tuner/table/table.hpp"
#include "workers/clock.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {
namespace {

/// Frozen ranks ask so seldom that it costs nothing, and often enough for a change to be answered.
constexpr std::uint32_t kFrozenWord = 16;
/// What crosses the barrier ends a step late: the first step under a setting is half the last
/// one's.
constexpr int kCrossingTrial = 3;
/// NCCL connects an algorithm's channels in the first step that runs under it.
constexpr int kConnectingTrial = 2;

/// Every rank's facts on the first one; empty elsewhere. Ranks: all.
std::vector<nlohmann::json> gather_facts(Communicator& comm) {
  const std::string own = probe_facts().dump();
  std::vector<double> sizes(static_cast<std::size_t>(comm.size()), 0);
  sizes[static_cast<std::size_t>(comm.rank())] = static_cast<double>(own.size());
  sizes = max_over_ranks(comm, std::move(sizes));
  if (comm.rank() != 0) {
    comm.wait(comm.isend(own.data(), own.size(), 0, kReportTag));
    return {};
  }
  std::vector<nlohmann::json> all{parsed_json(own)};
  for (int rank = 1; rank < comm.size(); ++rank) {
    std::string text(static_cast<std::size_t>(sizes[static_cast<std::size_t>(rank)]), ' ');
    comm.wait(comm.irecv(text.data(), text.size(), rank, kReportTag));
    all.push_back(parsed_json(text));
  }
  return all;
}

/// Settings of the library's own, as far as a call of this program takes them.
SpaceOptions options_of(Communicator& comm, Backend backend) {
  SpaceOptions options;
  // By our plugin, which knows all of NCCL's algorithms; what runs here is asked for by arm.
  if (backend_facts(backend).channels) options.scopes = {KnobScope::call};
  if (backend_facts(backend).channels) return options;
  options.scopes = {KnobScope::communicator, KnobScope::call};
  const std::vector<std::string> known = known_algorithms(backend, Collective::allreduce);
  for (const std::string& name : comm.algorithms(Collective::allreduce))
    if (name != CallShape{}.algorithm && std::find(known.begin(), known.end(), name) != known.end())
      options.algorithms.push_back(name);
  // An empty list would stand for all.
  if (options.algorithms.empty()) options.algorithms.emplace_back("default");
  return options;
}

bool offers(Communicator& comm, const char* algorithm, const char* protocol) {
  CallShape shape;
  shape.in_place = true;
  shape.algorithm = algorithm;
  shape.knobs["protocol"] = protocol;
  return !comm.unsupported(shape);
}

/// The same on every rank: NCCL's word on what runs here is, what a rank itself detects need not
/// be.
SpaceContext context_of(Communicator& comm, Backend backend, Bytes size) {
  SpaceContext context;
  context.backend = backend;
  context.ranks = comm.size();
  context.size = size;
  if (!backend_facts(backend).channels) return context;
  context.nccl_plugin = true;
  context.nvlink = offers(comm, "ring", "LL128") || offers(comm, "tree", "LL128");
  context.multicast = offers(comm, "nvls", "Simple");
  context.collnet =
      offers(comm, "collnet_direct", "Simple") || offers(comm, "collnet_chain", "Simple");
  // Its nodes are known by what there is between nodes alone.
  context.nodes = offers(comm, "nvls_tree", "Simple") ? 2 : 1;
  return context;
}

std::vector<CallShape> shapes_of(const ActionSpace& space, std::size_t count) {
  std::vector<CallShape> shapes;
  for (const Action& action : space.arms()) {
    const ActionSettings setting = space.setting(action);
    CallShape shape;
    shape.count = count;
    shape.in_place = true;
    shape.algorithm = setting.algorithm;
    shape.knobs = setting.call_knobs;
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

class CallTuner final : public StepTuner {
 public:
  CallTuner(Communicator& comm, const RunConfig& config, const TrainingSpec& spec,
            const ExchangePlan& plan);
  ~CallTuner() override { comm_.watch_channels(ChannelDetail::none); }

  [[nodiscard]] CallSettings& settings() override { return settings_; }
  void check_all(bool on) override;
  void step_done(double step_us, double loss) override;
  void describe(TrainingFigures& figures) const override;

 private:
  [[nodiscard]] StepTask task_of(std::size_t key, const ExchangePlan& plan) const;
  [[nodiscard]] std::vector<std::uint32_t> from_table();
  [[nodiscard]] std::size_t table_arm(const ConfigurationTable& table, const RegimeKey& key,
                                      const StepTask& task);
  void start_learning();
  void record(const DecisionRecord& record);

  Communicator& comm_;
  const RunConfig& config_;
  const TrainingSpec& spec_;
  CallSettings settings_;
  Regime regime_;  ///< the first rank's
  bool sums_in_network_ = false;
  std::vector<StepTask> tasks_;
  std::vector<std::uint32_t> fixed_;  ///< by a table
  std::optional<StepTrials> learner_;
  std::optional<DecisionFile> decisions_;
  std::vector<std::string> notes_;
  int written_ = 0;
  double thinking_us_ = 0;
  std::vector<double> sm_shares_;  ///< of each step
};

CallTuner::CallTuner(Communicator& comm, const RunConfig& config, const TrainingSpec& spec,
                     const ExchangePlan& plan)
    : comm_(comm), config_(config), spec_(spec), settings_(comm, plan) {
  const std::vector<nlohmann::json> facts = gather_facts(comm);
  if (!facts.empty())
    regime_ = derive_regime(facts, {config.backend, comm.library_version(), {}, {}});
  // No other setting may run where switches sum, and the first rank alone knows.
  const bool sums = !facts.empty() && state_from_regime(regime_.json).ina_active.value_or(false);
  sums_in_network_ = max_over_ranks(comm, {sums ? 1.0 : 0.0}).front() > 0;
  for (std::size_t key = 0; key < settings_.keys().size(); ++key) {
    tasks_.push_back(task_of(key, plan));
    settings_.set_arms(key, shapes_of(*tasks_.back().task.space,
                                      settings_.keys()[key].size.count() / sizeof(float)));
    for (const CallShape& shape : settings_.arms(key))
      tasks_.back().usable.push_back(!comm.unsupported(shape));
  }
  comm.watch_channels(ChannelDetail::kernels);
  if (comm.rank() != 0) return;
  decisions_.emplace(config.output_dir + "/" + kDecisionsFile);
  if (tuner_table(spec).empty()) {
    start_learning();
    settings_.propose(learner_->arms(), 1);
  } else {
    fixed_ = from_table();
    settings_.propose(fixed_, kFrozenWord);
  }
}

StepTask CallTuner::task_of(std::size_t key, const ExchangePlan& plan) const {
  const SettingKey& calls = settings_.keys()[key];
  StepTask one;
  one.calls = static_cast<std::int64_t>(calls.pieces);
  one.task.key = {regime_.id,
                  {Collective::allreduce, SizeBin::of(calls.size), comm_.size(), 1,
                   Architecture::ring, config_.backend}};
  SpaceContext context = context_of(comm_, config_.backend, calls.size);
  context.ina_active = sums_in_network_;
  one.task.space =
      std::make_shared<ActionSpace>(make_space(context, options_of(comm_, config_.backend)));
  State& state = one.task.state;
  if (!regime_.id.empty()) state = state_from_regime(regime_.json);
  set_task(state, one.task.key.task, calls.size, calls.size);
  set_training(state, spec_, comm_.size());
  // The step waits for its last message; for all of them where none goes before the pass is over.
  const auto& last = plan.pieces.back();
  state.critical = method_row(spec_.method).order == SendOrder::after_backward ||
                   SizeBin::of(Bytes(last.count * sizeof(float))) == one.task.key.task.bin;
  state.coflow_class = 0;
  state.watched = true;
  return one;
}

/// The arm of the table's row for these calls; 0 with a note where it has none that fits.
std::size_t CallTuner::table_arm(const ConfigurationTable& table, const RegimeKey& key,
                                 const StepTask& task) {
  const std::string name = key.task.text();
  const auto match = find_entry(table, key);
  if (!match) {
    notes_.push_back(name + ": the table has no row");
    return 0;
  }
  if (!match->exact) notes_.push_back(name + ": " + match->text);
  const ActionSpace& space = *task.task.space;
  const auto& all = space.arms();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Action& action) {
    return space.setting(action) == match->entry->setting;
  });
  const auto arm = static_cast<std::size_t>(found - all.begin());
  if (found != all.end() && task.usable[arm]) return arm;
  notes_.push_back(fmt::format("{}: {} is no setting of a call here", name, match->entry->arm));
  return 0;
}

std::vector<std::uint32_t> CallTuner::from_table() {
  const ConfigurationTable table = read_table(config_.output_dir + "/" + tuner_file(spec_));
  std::vector<std::uint32_t> arms(tasks_.size(), 0);
  const auto regime = nearest_regime(table, regime_);
  if (!regime) return arms;
  if (!regime->exact) notes_.push_back("regime " + regime->text);
  for (std::size_t t = 0; t < tasks_.size(); ++t) {
    const ActionSpace& space = *tasks_[t].task.space;
    RegimeKey key = tasks_[t].task.key;
    key.regime = table.regimes[regime->index].id;
    const GuardVerdict admitted = admit(tasks_[t].task.state);
    if (admitted == GuardVerdict::pass)
      arms[t] = static_cast<std::uint32_t>(table_arm(table, key, tasks_[t]));
    DecisionRecord said;
    said.guard = name_of(admitted);
    said.author = {"table", "", 0};
    said.task_key = key.task.text();
    said.kind = "final";
    said.epoch = table.epoch;
    said.arm = space.text(space.arms()[arms[t]]);
    said.state = state_json(tasks_[t].task.state);
    said.candidates = candidates_json(space);
    said.asked = setting_json(space.setting(space.arms()[arms[t]]));
    record(said);
  }
  return arms;
}

void CallTuner::start_learning() {
  StepTrialsOptions options;
  options.agent_options.seed = config_.seed;
  if (backend_facts(config_.backend).channels) {
    options.trial_steps = kConnectingTrial;
    options.trial_skips = 1;
  }
  if (crosses_barrier(spec_.method)) {
    options.trial_steps = kCrossingTrial;
    options.trial_skips = 1;
  }
  options.on_decision = [this](const DecisionRecord& one) { record(one); };
  learner_.emplace(tasks_, std::move(options));
}

void CallTuner::record(const DecisionRecord& record) {
  DecisionRecord whole = record;
  whole.regime = regime_.id;
  whole.regime_name = regime_.name;
  decisions_->add(whole);
  ++written_;
}

void CallTuner::check_all(bool on) {
  settings_.rotate(on);
  // Steps of a check ran under other arms than the word said.
  if (!on) settings_.take_steps();
}

void CallTuner::step_done(double step_us, double loss) {
  const auto steps = settings_.take_steps();
  const std::optional<double> sm_share = sm_share_of(comm_, step_us);
  if (sm_share) sm_shares_.push_back(*sm_share);
  if (comm_.rank() != 0 || !learner_ || steps.empty()) return;
  const double start_us = now_us();
  // What crosses the barrier is sent with the step in which it ended.
  const SettingStep& last = steps.back();
  // Until the ranks are spoken to again they run under what was said last.
  learner_->add({step_us, last.call_us, last.refused, loss, last.arms, sm_share});
  settings_.propose(learner_->arms(), learner_->frozen() ? kFrozenWord : 1);
  thinking_us_ += now_us() - start_us;
}

void CallTuner::describe(TrainingFigures& figures) const {
  if (comm_.rank() != 0) return;
  nlohmann::json keys = nlohmann::json::array();
  for (std::size_t t = 0; t < tasks_.size(); ++t) {
    const ActionSpace& space = *tasks_[t].task.space;
    const std::size_t arm = learner_ ? learner_->arms()[t] : fixed_[t];
    nlohmann::json key = {{"task", tasks_[t].task.key.task.text()},
                          {"messages", tasks_[t].calls},
                          {"settings", space.arms().size()},
                          {"setting", space.text(space.arms()[arm])}};
    if (const auto gain = learner_ ? learner_->gain(t) : std::nullopt) {
      key["ratio"] = gain->value;
      if (gain->interval) key["interval"] = {gain->interval->low, gain->interval->high};
    }
    keys.push_back(std::move(key));
  }
  std::vector<std::string> notes = notes_;
  if (std::string lost = decisions_->problem(); !lost.empty()) notes.push_back(std::move(lost));
  auto& all = figures.details["tuner"];
  all = {{"mode", learner_ ? "online" : "table"},
         {"regime", regime_.name},
         {"keys", std::move(keys)},
         {"decisions", written_},
         {"thinking_us", thinking_us_},
         {"notes", notes}};
  if (!sm_shares_.empty()) all["sm_share"] = median(sm_shares_);
  if (!learner_) return;
  all["steps"] = learner_->steps();
  all["frozen_after_steps"] = learner_->frozen_after();
  all["alarms"] = learner_->alarms();
}

}  // namespace

std::string why_no_step_tuner() { return ""; }

std::unique_ptr<StepTuner> make_step_tuner(Communicator& comm, const RunConfig& config,
                                           const TrainingSpec& spec, const ExchangePlan& plan) {
  return std::make_unique<CallTuner>(comm, config, spec, plan);
}

}  // namespace dynamiccl
