#include "train/run/training_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "core/vocabulary/usable_cores.hpp"
#include "profiles/detect/network_interface.hpp"
#include "train/data/dataset_agreement.hpp"
#include "train/exchange/carrier.hpp"
#include "train/observe/channel_share.hpp"
#include "train/observe/link_cost.hpp"
#include "train/observe/model_profile.hpp"
#include "train/observe/step_traffic.hpp"
#include "train/observe/training_figures.hpp"
#include "train/oracle/training_check.hpp"
#include "train/oracle/update_replay.hpp"
#include "train/run/cell_fit.hpp"
#include "train/run/epochs.hpp"
#include "train/run/silence.hpp"
#include "train/run/step_tuner.hpp"
#include "train/synchronise/asynchronous_training.hpp"
#include "train/synchronise/lazy_gradients.hpp"
#include "train/synchronise/round_driver.hpp"
#include "train/synchronise/step_driver.hpp"
#include "train/synchronise/worker_group.hpp"
#include "workers/aggregation/aggregation_link.hpp"
#include "workers/clock.hpp"
#include "workers/measure/peak_memory.hpp"
#include "workers/standing.hpp"

namespace dynamiccl {
namespace {

/// What decides whether two cells share a model and its profile.
std::string model_key(const TrainingSpec& spec, int workers, bool on_gpu) {
  // What is compared with the oracle is computed by other kernels on a GPU, whose sums always go in
  // one order.
  return fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", name_of(spec.model), spec.batch,
                     spec.sequence, spec.data, spec.samples, spec.threads, workers,
                     name_of(spec.precision), on_gpu && spec.oracle > 0, spec.pace,
                     spec.slow_factor, spec.slow_worker);
}

/// Rounds of neighbours that are checked, whatever the cell says.
constexpr int kLeastOracle = 2;

/// What was encoded in the measured steps.
/// @param level whose messages these are, in the record's details
void note_coding(CellRecord& record, const ExchangePlan& plan, const CodingFigures& coding,
                 const char* level = "compression") {
  describe(*record.training, plan, coding, level);
  check_coding(record, plan, coding);
}

/// The oracle may have ended before workers first decided anything: what they did is looked at too.
void note_rule(CellRecord& record, const std::string& broken) {
  if (broken.empty()) return;
  ++record.wrong;
  fail_check(record, fmt::format("measured rounds: {}", broken));
}

class TrainingRun final : public TrainingRunner {
 public:
  TrainingRun(Communicator& comm, const RunConfig& config, double epoch_us)
      : comm_(comm), config_(config), epoch_us_(epoch_us) {}

  CellRecord run(const WorkCell& cell, int position) override;
  [[nodiscard]] std::uint64_t last_payload_bytes() const override { return payload_bytes_; }

 private:
  [[nodiscard]] std::string unsupported(const WorkCell& cell);
  /// A server alone: colocated ones are workers.
  [[nodiscard]] bool is_server() const { return comm_.rank() < dedicated_; }
  /// nullptr on a dedicated server.
  TrainingWorker* own_worker() { return is_server() ? nullptr : &*worker_; }
  void prepare_model();
  GradientPath open_path(TrainingFigures& figures);
  const LinkCost& link(GradientPath path);
  ExchangePlan choose_plan(const LinkCost& cost, GradientPath path, TrainingFigures& figures);
  void train(CellRecord& record, const ExchangePlan& plan);
  struct WorkerCell {
    StepDriver& driving;
    FigureCollector& collector;
    CellRecord& record;
  };
  struct StepPlace {
    int step;
    int steps;  ///< in the phase
    bool measured;
  };
  /// @returns what the step took, microseconds
  double take_step(const WorkerCell& cell, SampleArrays& samples, const StepPlace& at);
  void train_as_worker(CellRecord& record, const ExchangePlan& plan);
  void look(StepDriver& driving, StepTraffic& traffic, TrainingFigures& figures, int rounds);
  void train_as_server(CellRecord& record, const ExchangePlan& plan);
  void train_asynchronously(CellRecord& record, const ExchangePlan& plan);
  void check(CellRecord& record, const ExchangePlan& plan);
  void compare_workers(CellRecord& record);
  /// After which a worker that owes something is taken for lost.
  [[nodiscard]] Micros silence() const {
    return longest_silence(spec_, workers_, Micros(profile_->compute_us));
  }
  [[nodiscard]] int judged_samples() const {
    return spec_.evaluate > 0 ? spec_.evaluate : std::numeric_limits<int>::max();
  }
  /// A worker's memory besides its gradients.
  /// @param has_peak the kernel's peak was begun anew before training
  void describe_held(TrainingFigures& figures, const ExchangePlan& plan, std::size_t extra_bytes,
                     bool has_peak);
  double accuracy_of(StepDriver& driving);
  [[nodiscard]] std::unique_ptr<StepDriver> driver(const ExchangePlan& plan);
  int measured_steps(double step_us);
  /// @returns the rounds
  int train_epochs(TrainingFigures& figures, EpochTrainer trainer);
  static int train_for(int rounds, const EpochTrainer& trainer) {
    trainer.train(rounds);
    return rounds;
  }

  Communicator& comm_;
  const RunConfig& config_;
  double epoch_us_;
  TrainingSpec spec_;
  int servers_ = 0;
  int dedicated_ = 0;  ///< of the servers, the ranks that do nothing else
  int workers_ = 1;
  int threads_ = 1;
  std::string model_key_;
  std::unique_ptr<Dataset> data_;
  std::unique_ptr<Dataset> opened_;  ///< a cell's own, until all ranks are known to train it
  std::unique_ptr<Learner> learner_;
  std::optional<TrainingWorker> worker_;
  std::map<std::string, ModelProfile> profiles_;
  ModelProfile* profile_ = nullptr;
  std::map<std::string, LinkCost> links_;
  std::map<std::string, std::vector<TriedPath>> paths_;  ///< of each model
  std::unique_ptr<EngineGroup> engine_;                  ///< joined by the first cell that needs it
  CoreWait wait_;
  std::optional<AggregationLink> aggregation_;  ///< of the launch, once a cell has gone by it
  std::unique_ptr<StepTuner> tuner_;            ///< of the cell, where it has one
  std::uint64_t payload_bytes_ = 0;
};

std::string TrainingRun::unsupported(const WorkCell& cell) {
  try {
    spec_ = parsed_training(cell);
    // Workers that never agree have nothing else by which a cell could be seen to be wrong.
    const bool agree = agreement_of(spec_.method, spec_.synchronisation) != WeightAgreement::never;
    if (config_.protocol.verify && !agree && spec_.oracle == 0) spec_.oracle = kLeastOracle;
    if (auto reason = why_not_trainable(comm_, config_, spec_); !reason.empty()) return reason;
    if (spec_.packing == Packing::aggregated && !aggregation_)
      aggregation_.emplace(aggregator_place(cell.knobs), comm_.rank(), comm_.size());
    if (auto reason = ranks_misfit(spec_, comm_.size()); !reason.empty()) return reason;
    spec_.servers = servers_ = servers_of(spec_, comm_.size());
    dedicated_ = dedicated_servers(spec_);
    workers_ = workers_of(spec_, comm_.size());
    threads_ = spec_.threads > 0 ? spec_.threads : std::max(1, usable_cores() / comm_.size());
    if (!is_server() && model_key_ != model_key(spec_, workers_, comm_.works_on_gpu()))
      opened_ = open_dataset(spec_);
    const Dataset* data = opened_ ? opened_.get() : data_.get();
    if (!is_server())
      if (auto reason = samples_misfit(spec_, data->training_size(), workers_); !reason.empty())
        return reason;
    if (spec_.target > 0 && !is_server() && data->held_out_size() == 0)
      return fmt::format(
          "target = {}: no sample is held out of data = \"{}\" to see the accuracy by; add "
          "test_batch.bin (CIFAR-10) or t10k-images-idx3-ubyte with its labels (IDX)",
          spec_.target, spec_.data);
    return "";
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    return error.what();
  }
}

void TrainingRun::prepare_model() {
  const std::string key = model_key(spec_, workers_, comm_.works_on_gpu());
  if (!is_server()) {
    if (key != model_key_) {
      worker_.reset();
      learner_.reset();
      data_ = std::move(opened_);
      learner_ = make_learner(spec_, config_.seed, threads_, gpu_of(comm_, config_));
      learner_->keep_samples(*data_);
    } else {
      worker_->reset();
    }
    worker_.emplace(spec_, *learner_, *data_, comm_.rank() - dedicated_, workers_, config_.seed);
  }
  model_key_ = key;
  const auto [found, is_new] = profiles_.try_emplace(key);
  profile_ = &found->second;
  TrainingWorker* worker = own_worker();
  if (is_new) *profile_ = profile_model(comm_, dedicated_, worker, learner_.get());
  if (worker == nullptr) return;
  worker->set_order(profile_->order);
  worker->reset();
}

std::unique_ptr<StepDriver> TrainingRun::driver(const ExchangePlan& plan) {
  wait_.find_threads();
  if (method_row(plan.method).engine && engine_ == nullptr) {
    // The launch's id keeps files of an earlier launch from being taken for ours.
    engine_ = join_engine({fmt::format("{}/ddp-{}", config_.rendezvous_dir, config_.launch_id),
                           gloo_interface(config_.interface), comm_.rank(), comm_.size(),
                           config_.connect_timeout});
  }
  if (spec_.synchronisation == Synchronisation::lag)
    return make_lazy_driver(comm_, plan, spec_, *worker_, silence());
  if (goes_by_rounds(spec_)) return make_round_driver(comm_, plan, spec_, *worker_, silence());
  return make_step_driver(comm_, plan, spec_, *worker_, *learner_, engine_.get(),
                          tuner_ != nullptr ? &tuner_->settings() : nullptr);
}

int TrainingRun::measured_steps(double step_us) {
  const Protocol& protocol = config_.protocol;
  if (spec_.steps > 0) return spec_.steps;
  const double slowest = max_over_ranks(comm_, {step_us})[0];
  if (slowest <= 0) return protocol.iterations;
  const double fitting = protocol.cell_time_cap.count() / slowest;
  const int least = std::min(std::max(protocol.min_iterations, 1), protocol.iterations);
  return static_cast<int>(std::clamp<double>(fitting, least, std::max(protocol.iterations, least)));
}

int TrainingRun::train_epochs(TrainingFigures& figures, EpochTrainer trainer) {
  // Servers have no data.
  const double own = is_server() ? 0 : static_cast<double>(worker_->steps_per_epoch());
  const auto steps = static_cast<std::uint64_t>(max_over_ranks(comm_, {own})[0]);
  if (!trainer.accuracy)
    trainer.accuracy = [&] { return is_server() ? 1 : worker_->accuracy(judged_samples()); };
  return run_epochs(comm_, spec_, steps, trainer, figures);
}

/// Tried by the first cell of a model that has a choice.
GradientPath TrainingRun::open_path(TrainingFigures& figures) {
  if (spec_.packing == Packing::aggregated) return {1, false, false, &*aggregation_};
  // Servers, packed gradients and rings of our own have one path.
  if (servers_ > 0 || spec_.packing != Packing::none || spec_.compression != Codec::none) return {};
  if (method_row(spec_.method).split && comm_.queue() == nullptr) return {};
  if (goes_by_rounds(spec_)) return {};
  const auto [found, is_new] = paths_.try_emplace(model_key_);
  if (is_new) found->second = try_paths(comm_, profile_->counts, *worker_, usable_cores());
  GradientPath path = choose_path(found->second);
  path.lanes = comm_.open_lanes(path.lanes);
  describe(figures, found->second);
  return path;
}

/// Cost table of the cell's path, measured by the first cell that takes it.
const LinkCost& TrainingRun::link(GradientPath path) {
  const auto [found, is_new] =
      links_.try_emplace(fmt::format("{}|{}", model_key_, link_key(spec_)));
  if (is_new) {
    if (!is_server()) worker_->hold(true, worker_->needs_answers(servers_));
    found->second = measure_link(comm_, spec_, profile_->counts, own_worker(), threads_, path);
    if (!is_server()) worker_->hold(true, false);
  }
  return found->second;
}

/// By what is expected of each possible plan, and by steps of those too close to tell apart.
ExchangePlan TrainingRun::choose_plan(const LinkCost& cost, GradientPath path,
                                      TrainingFigures& figures) {
  const bool on_gpu = comm_.works_on_gpu();
  auto plans = possible_plans(spec_, profile_->step, cost, on_gpu);
  std::vector<Expectation> expected;
  for (auto& plan : plans) {
    plan.path = path;
    plan.seed = config_.seed;
    if (!is_server()) plan.rows = worker_->rows();
    expected.push_back(expected_step(plan, profile_->step, cost, on_gpu));
  }
  const auto train = [&](std::size_t candidate, int steps) {
    const auto driving = driver(plans[candidate]);
    std::vector<double> times;
    for (int i = 0; i < steps; ++i) {
      const double start_us = driving->step().start_us;
      times.push_back((now_us() - start_us) / workers_);
    }
    driving->finish();
    return sum_over_ranks(comm_, std::move(times));
  };
  const double allowed_us =
      workers_ > 1 ? kTrialCaps * config_.protocol.cell_time_cap.count() : 0;  // nothing is sent
  const TrialResult trial = choose_by_trial(expected, allowed_us, train);
  if (!trial.tried.empty()) worker_->reset();
  describe(figures, trial, plans);
  return std::move(plans[trial.chosen]);
}

void TrainingRun::train(CellRecord& record, const ExchangePlan& plan) {
  stand_at(Standpoint::step, 0);
  barrier(comm_);
  if (answers_singly(spec_)) {
    train_asynchronously(record, plan);
  } else if (is_server()) {
    train_as_server(record, plan);
  } else {
    train_as_worker(record, plan);
  }
  if (plan.path.aggregation == nullptr) return;
  record.training->details["aggregator"] = to_json(plan.path.aggregation->counts());
  payload_bytes_ = 0;  // which says nothing of the way that the library's messages take
}

double TrainingRun::take_step(const WorkerCell& cell, SampleArrays& samples, const StepPlace& at) {
  const bool on_gpu = worker_->memory().on_gpu();
  const bool is_last = at.step + 1 == at.steps;
  // Reading a GPU's calls waits for all of them, which a step that crosses the barrier would not.
  const bool seen = !on_gpu || (at.measured && !is_last && !crosses_barrier(spec_.method) &&
                                at.step % CallTimes::kStepsOfGpu == 0);
  if (seen && on_gpu) cell.driving.trace_next();
  StepTimes now;
  const auto one = [&](bool last) { return timed_step(cell.driving, wait_, last, now); };
  const double total_us = watched_step(comm_, is_last, spec_, one, cell.record);
  const auto busy_us = cell.driving.take_busy_us();
  add_step(samples, now.start_us - epoch_us_, total_us, busy_us,
           now.forward_us + now.backward_us + now.update_us, now.waited_us);
  cell.collector.add(now, total_us, at.measured, busy_us);
  if (seen || is_last)
    cell.collector.add_calls(now.start_us, cell.driving.take_spans(), at.measured && seen, !on_gpu);
  if (tuner_ != nullptr) tuner_->step_done(total_us, now.loss);
  return total_us;
}

void TrainingRun::train_as_worker(CellRecord& record, const ExchangePlan& plan) {
  const bool has_peak = restart_peak_memory();
  const auto driving = driver(plan);
  FigureCollector collector(plan, *profile_, comm_.device());
  double worker_steps = 0;  // measured, as are these
  double exchanges = 0;
  const auto phase = [&](int steps, SampleArrays& samples, bool measured) {
    double mean = 0;
    for (int i = 0; i < steps; ++i) {
      if (measured) worker_steps += driving->next_steps();
      if (measured) exchanges += driving->next_exchanges();
      mean += take_step({*driving, collector, record}, samples, {i, steps, measured}) / steps;
    }
    return mean;
  };
  const double warm_us = phase(config_.protocol.warmup, record.warmup, false);
  const std::uint64_t before = driving->sent_bytes();
  driving->take_coding();
  const auto measure = [&](int n) {
    return collector.energy().over(n, [&] { return phase(n, record.measured, true); });
  };
  EpochTrainer trainer{measure,
                       [&] { return driving->next_steps(); },
                       [&] { driving->switch_over(); },
                       {},
                       [&] { return accuracy_of(*driving); }};
  if (spec_.epochs > 0) {
    worker_->reset();
    driving->restarted();
    collector.restart();
  }
  StepTraffic traffic(comm_, plan);
  trainer.look = [&](int rounds) { look(*driving, traffic, *record.training, rounds); };
  const int steps = spec_.epochs > 0 ? train_epochs(*record.training, trainer)
                                     : train_for(measured_steps(warm_us), trainer);
  payload_bytes_ = driving->sent_bytes() - before;
  if (spec_.epochs == 0) trainer.look(steps);
  collector.add_trace(worker_->stage_spans(), comm_.rank());
  driving->describe(*record.training);
  if (config_.protocol.verify) note_rule(record, driving->broken_rule());
  if (const auto coding = driving->take_coding()) note_coding(record, plan, *coding);
  driving->conclude();
  describe_held(*record.training, plan, driving->extra_bytes(), has_peak);
  collector.fill(*record.training, static_cast<double>(payload_bytes_) / steps);
  note_divergence(record, collector.first_without_loss(), *worker_);
  // How long rounds were is known by now: they may shorten, or end at a switch.
  record.training->c2c_predicted = c2c_predicted(spec_, workers_, exchanges / worker_steps);
  traffic.conclude(*record.training, spec_.batch * worker_steps, steps,
                   static_cast<double>(payload_bytes_));
}

void TrainingRun::look(StepDriver& driving, StepTraffic& traffic, TrainingFigures& figures,
                       int rounds) {
  const auto at_weights = [&] { driving.look(figures, rounds); };
  // Of all methods, neighbours alone send each other what is looked at.
  if (method_row(spec_.method).sums != SumPlace::neighbours) return at_weights();
  traffic.leave_out(at_weights);
}

void TrainingRun::describe_held(TrainingFigures& figures, const ExchangePlan& plan,
                                std::size_t extra_bytes, bool has_peak) {
  const std::size_t shard = plan.colocated ? plan.shard_bytes(comm_.rank()) : 0;
  describe_memory(figures, worker_->gradient_bytes(), extra_bytes,
                  worker_->gradient_bytes() * copies_of(spec_, plan.codec) +
                      static_cast<std::size_t>(workers_ + 1) * shard);
  if (has_peak && profile_->peak_bytes && !worker_->memory().on_gpu())
    figures.details["memory"]["peak_extra_bytes"] = peak_memory_bytes() - *profile_->peak_bytes;
}

double TrainingRun::accuracy_of(StepDriver& driving) {
  double accuracy = 0;
  driving.with_judged([&] { accuracy = worker_->accuracy(judged_samples()); });
  return accuracy;
}

void TrainingRun::train_as_server(CellRecord& record, const ExchangePlan& plan) {
  const auto server = make_step_server(comm_, plan, spec_, silence());
  server->take_weights();
  const auto phase = [&](int steps, SampleArrays& samples) {
    double mean = 0;
    for (const auto& step : server->serve(steps)) {
      const double total_us = step.end_us - step.start_us;
      add_step(samples, step.start_us - epoch_us_, total_us, total_us - step.sum_us, step.sum_us);
      mean += (step.end_us - step.start_us) / steps;
    }
    return mean;
  };
  const double warm_us = phase(config_.protocol.warmup, record.warmup);
  const std::uint64_t before = server->sent_bytes();
  EpochTrainer trainer;
  trainer.train = [&](int count) { return phase(count, record.measured); };
  trainer.next_steps = [&] { return round_steps(spec_); };
  if (spec_.epochs > 0) server->take_weights();
  StepTraffic traffic(comm_, plan);
  const int steps = spec_.epochs > 0 ? train_epochs(*record.training, trainer)
                                     : train_for(measured_steps(warm_us), trainer);
  payload_bytes_ = server->sent_bytes() - before;
  record.training->wire_bytes = static_cast<double>(payload_bytes_) / steps;
  traffic.conclude(*record.training, static_cast<double>(spec_.batch) * round_steps(spec_) * steps,
                   steps, static_cast<double>(payload_bytes_));
  describe_memory(*record.training, server->shard_bytes(), server->held_bytes(),
                  static_cast<std::size_t>(workers_ + 1) * server->shard_bytes());
}

void TrainingRun::train_asynchronously(CellRecord& record, const ExchangePlan& plan) {
  AsynchronousTraining training(comm_, plan, spec_, own_worker(), silence());
  FigureCollector collector(plan, *profile_);
  training.start();
  const auto phase = [&](int rounds, SampleArrays& samples, bool measured) {
    double mean = 0;
    const auto done = training.run(rounds, epoch_us_);
    StepTimes step = training.typical_step();
    for (const auto& calls : training.calls())
      collector.add_calls(calls.start_us, calls.spans, measured);
    if (measured) collector.leave_out_calls(training.calls_left_out());
    for (const auto& round : done) {
      const double collective_us = is_server() ? round.total_us - round.update_us : step.exposed_us;
      add_step(samples, round.start_us, round.total_us, collective_us,
               is_server() ? round.update_us : step.forward_us + step.backward_us + step.update_us);
      step.loss = round.loss;
      collector.add(step, step.total_us, measured);
      mean += round.total_us / rounds;
    }
    return mean;
  };
  double warm_us = profile_->compute_us;
  if (config_.protocol.warmup > 0) warm_us = phase(config_.protocol.warmup, record.warmup, false);
  if (spec_.epochs > 0) {
    if (!is_server()) worker_->reset();
    training.start();
    collector.restart();
  }
  const std::uint64_t before = training.sent_bytes();
  training.take_coding();
  training.take_group_coding();
  EpochTrainer trainer;
  trainer.train = [&](int count) { return phase(count, record.measured, true); };
  trainer.switch_over = [&] { training.switch_over(); };
  StepTraffic traffic(comm_, plan);
  const int rounds = spec_.epochs > 0 ? train_epochs(*record.training, trainer)
                                      : train_for(measured_steps(warm_us), trainer);
  payload_bytes_ = training.sent_bytes() - before;
  const double payload = static_cast<double>(payload_bytes_);
  if (is_server()) {
    record.training->wire_bytes = payload / rounds;
  } else {
    collector.fill(*record.training, payload / rounds);
    note_divergence(record, collector.first_without_loss(), *worker_);
  }
  traffic.conclude(*record.training, static_cast<double>(spec_.batch) * rounds, rounds, payload);
  training.describe(*record.training);
  if (const auto coding = training.take_coding()) note_coding(record, plan, *coding);
  if (const auto coding = training.take_group_coding())
    note_coding(record, group_plan(plan, spec_), *coding, "group_compression");
  const std::size_t unit =
      (is_server() ? training.server()->weights().size() : plan.elements()) * sizeof(float);
  // A slot for each worker, the answer, and a gradient as it was encoded.
  const int slots = workers_ + 1 + (plan.codec.codec != Codec::none ? 1 : 0);
  describe_memory(*record.training, unit, training.held_bytes(),
                  is_server()
                      ? unit * static_cast<std::size_t>(slots)
                      : unit * copies_of(spec_, plan.codec) + group_limit_bytes(plan, spec_));
}

/// Before anything is measured, against one process that does every worker's part.
void TrainingRun::check(CellRecord& record, const ExchangePlan& plan) {
  if (spec_.oracle == 0) return;
  stand_at(Standpoint::step, 0);
  own_standing().checked = 1;
  const auto make = [&] { return driver(plan); };
  if (answers_singly(spec_)) {
    check_updates(comm_, plan, spec_, own_worker(), silence(), record);
  } else if (spec_.compression != Codec::none &&
             method_row(spec_.method).sums != SumPlace::neighbours) {
    check_coded(comm_, plan, spec_, own_worker(), make, record);
  } else if (goes_by_rounds(spec_) || spec_.synchronisation == Synchronisation::lag) {
    check_rounds(comm_, plan, spec_, own_worker(), silence(), make, record);
  } else {
    if (tuner_ != nullptr) tuner_->check_all(true);
    check_oracle(comm_, plan, spec_.oracle, own_worker(), make, record);
    if (tuner_ != nullptr) tuner_->check_all(false);
  }
  own_standing().checked = 0;
}

/// After the last step, as far as workers agree then.
void TrainingRun::compare_workers(CellRecord& record) {
  stand_at(Standpoint::comparison, 0);
  if (agreement_of(spec_.method, spec_.synchronisation) != WeightAgreement::never)
    return compare_ranks(comm_, dedicated_, profile_->counts, own_worker(), record);
  if (!is_server()) note_digest(*worker_, record);
}

CellRecord TrainingRun::run(const WorkCell& cell, int position) {
  CellRecord record;
  record.cell_id = cell.id;
  record.rank = comm_.rank();
  record.position = position;
  record.barrier = "none";
  payload_bytes_ = 0;
  const StandingOfCell standing;
  const std::string refusal = unsupported(cell);
  // A file that only one rank lacks must not leave the others waiting.
  record.reason = agreed_refusal(comm_, refusal, opened_.get());
  if (!record.reason.empty()) {
    opened_.reset();
    record.status = CellStatus::unsupported;
    return record;
  }
  prepare_model();
  record.algorithm = name_of(spec_.method);
  TrainingFigures& figures = record.training.emplace();
  comm_.wait_for_as_long_as(longest_wait(spec_, workers_, Micros(profile_->compute_us)));
  const GradientPath path = open_path(figures);
  static const LinkCost nothing_known;
  const LinkCost& cost = needs_cost(spec_) ? link(path) : nothing_known;
  const ExchangePlan plan = choose_plan(cost, path, figures);
  figures.role = is_server() ? "server" : "worker";
  figures.single_us = is_server() ? 0 : profile_->single_us;
  figures.compute_us = is_server() ? 0 : profile_->compute_us;
  // What is foretold is a step that all do together.
  const bool foretold = trains_as_one(spec_);
  const auto predicted = predict_step(plan, profile_->step, cost);
  if (foretold) figures.predicted_us = predicted.step_us;
  figures.intensity = facts_of(spec_.model, spec_.sequence).intensity();
  figures.c2c_predicted = c2c_predicted(spec_, workers_);
  tuner_ = is_tuned(spec_) ? make_step_tuner(comm_, config_, spec_, plan) : nullptr;
  check(record, plan);
  train(record, plan);
  if (tuner_ != nullptr) tuner_->describe(figures);
  tuner_.reset();
  describe(figures, plan, cost);
  const GradientCarrier carrier = carrier_of(comm_, plan);
  if (!method_row(spec_.method).engine) figures.details["carried_by"] = carrier.library;
  if (!is_server() && worker_->memory().on_gpu()) figures.details["path"] = carrier.path;
  if (foretold) describe(figures, predicted);
  if (!is_server()) {
    figures.details["data"] = data_->description();
    figures.details["steps_per_epoch"] = worker_->steps_per_epoch();
  }
  if (config_.protocol.verify) compare_workers(record);
  if (!is_server() && spec_.evaluate > 0 && spec_.epochs == 0)
    figures.accuracy = worker_->accuracy(spec_.evaluate);
  barrier(comm_);
  return record;
}

/// A worker's buffers are there as long as the library may use them.
class KeptRun final : public TrainingRunner {
 public:
  KeptRun(Communicator& comm, const RunConfig& config, double epoch_us)
      : run_(make_outliving<TrainingRun>(comm, config, epoch_us)) {}
  CellRecord run(const WorkCell& cell, int position) override { return run_->run(cell, position); }
  [[nodiscard]] std::uint64_t last_payload_bytes() const override {
    return run_->last_payload_bytes();
  }

 private:
  Outliving<TrainingRun> run_;
};

}  // namespace

std::unique_ptr<TrainingRunner> make_training_run(Communicator& comm, const RunConfig& config,
                                                  double epoch_us) {
  return std::make_unique<KeptRun>(comm, config, epoch_us);
}

}  // namespace dynamiccl
