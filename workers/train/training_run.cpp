#include "workers/train/training_run.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "core/digest.hpp"
#include "core/statistics.hpp"
#include "workers/measure/clock.hpp"
#include "workers/train/link_cost.hpp"
#include "workers/train/training_figures.hpp"

namespace dynamiccl {
namespace {

constexpr int kProfileSteps = 5;
constexpr double kOracleTolerance = 1e-6;

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/// What decides whether two cells share a model and its profile.
std::string model_key(const TrainingSpec& spec, int workers) {
  return fmt::format("{}|{}|{}|{}|{}|{}|{}", name_of(spec.model), spec.batch, spec.sequence,
                     spec.data, spec.samples, spec.threads, workers);
}

double median_of(const std::vector<StepTimes>& steps, double StepTimes::*member) {
  std::vector<double> values;
  for (const auto& step : steps) values.push_back(step.*member);
  return values.empty() ? 0 : median(values);
}

class TrainingRun final : public TrainingRunner {
 public:
  TrainingRun(Communicator& comm, const RunConfig& config, double epoch_us)
      : comm_(comm), config_(config), epoch_us_(epoch_us) {}

  CellRecord run(const WorkCell& cell, int position) override;
  [[nodiscard]] std::uint64_t last_payload_bytes() const override { return payload_bytes_; }

 private:
  [[nodiscard]] std::string unsupported(const WorkCell& cell);
  [[nodiscard]] bool is_server() const { return comm_.rank() < servers_; }
  [[nodiscard]] bool is_first_worker() const { return comm_.rank() == servers_; }
  void prepare_model();
  void profile_model();
  void share_order();
  void check_oracle(CellRecord& record, const ExchangePlan& plan);
  void train(CellRecord& record, const ExchangePlan& plan);
  void train_as_worker(CellRecord& record, const ExchangePlan& plan);
  void train_as_server(CellRecord& record, const ExchangePlan& plan);
  int measured_steps(double step_us);
  void compare_ranks(CellRecord& record);

  Communicator& comm_;
  const RunConfig& config_;
  double epoch_us_;
  TrainingSpec spec_;
  int servers_ = 0;
  int workers_ = 1;
  int threads_ = 1;
  std::string model_key_;
  std::unique_ptr<Dataset> data_;
  std::unique_ptr<Learner> learner_;
  std::optional<TrainingWorker> worker_;
  std::map<std::string, ModelProfile> profiles_;
  ModelProfile* profile_ = nullptr;
  std::map<std::string, LinkCost> links_;
  std::uint64_t payload_bytes_ = 0;
};

std::string TrainingRun::unsupported(const WorkCell& cell) {
  try {
    spec_ = training_spec(cell);
    if (architecture_of(spec_.method) != config_.architecture)
      return fmt::format("{} does not belong to the {} architecture", name_of(spec_.method),
                         name_of(config_.architecture));
    if (comm_.works_on_gpu()) return "training runs on host memory so far, not on GPUs";
    servers_ = config_.architecture == Architecture::ps ? spec_.servers : 0;
    workers_ = comm_.size() - servers_;
    if (workers_ < 1)
      return fmt::format("{} server{} no worker among {} ranks", servers_,
                         servers_ == 1 ? " leaves" : "s leave", comm_.size());
    if (facts_of(spec_.model, spec_.sequence).tokens && !has_fast_blas())
      return "transformers need OpenBLAS here: apt-get install libopenblas0-pthread";
    threads_ = spec_.threads > 0 ? spec_.threads : std::max(1, usable_cores() / comm_.size());
    if (!is_server() && (data_ == nullptr || model_key_ != model_key(spec_, workers_)))
      data_ = open_dataset(spec_);
    return "";
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    return error.what();
  }
}

void TrainingRun::prepare_model() {
  const std::string key = model_key(spec_, workers_);
  if (!is_server()) {
    if (key != model_key_) {
      worker_.reset();
      learner_.reset();
      learner_ = make_learner(spec_, config_.seed, threads_);
    } else {
      worker_->reset();
    }
    worker_.emplace(spec_, *learner_, *data_, comm_.rank() - servers_, workers_, config_.seed);
  }
  model_key_ = key;
  const auto [found, is_new] = profiles_.try_emplace(key);
  profile_ = &found->second;
  if (is_new) share_order();
  if (!is_server()) worker_->set_order(profile_->order);
  if (is_new) profile_model();
  if (!is_server()) worker_->reset();
}

/// The first worker's order counts; a server learns from it what there is to sum.
void TrainingRun::share_order() {
  std::vector<std::int32_t> head(2, 0);
  std::vector<int> order;
  if (!is_server()) order = worker_->observe_order();
  if (is_first_worker()) head = {static_cast<std::int32_t>(order.size()), learner_->stages()};
  comm_.broadcast(head.data(), head.size(), DataType::int32, servers_);
  const auto count = static_cast<std::size_t>(head[0]);
  std::vector<std::int32_t> table(3 * count, 0);
  if (is_first_worker()) {
    const auto& parameters = learner_->parameters();
    for (std::size_t i = 0; i < count; ++i) {
      const auto& parameter = parameters[static_cast<std::size_t>(order[i])];
      table[3 * i] = order[i];
      table[3 * i + 1] = static_cast<std::int32_t>(parameter.count);
      table[3 * i + 2] = parameter.stage;
    }
  }
  comm_.broadcast(table.data(), table.size(), DataType::int32, servers_);
  profile_->step.stage_forward_us.assign(static_cast<std::size_t>(head[1]), 0);
  for (std::size_t i = 0; i < count; ++i) {
    profile_->order.push_back(table[3 * i]);
    profile_->counts.push_back(static_cast<std::size_t>(table[3 * i + 1]));
    profile_->step.stage_of_gradient.push_back(table[3 * i + 2]);
    profile_->step.gradients.push_back({0, profile_->counts.back() * sizeof(float)});
  }
}

/// All workers at once, then the first one alone. The slowest worker's figures count, so that every
/// rank makes the same plan.
void TrainingRun::profile_model() {
  StepProfile& shared = profile_->step;
  const auto alone = [&] {
    std::vector<StepTimes> steps;
    worker_->step_alone(nullptr);
    for (int i = 0; i < kProfileSteps; ++i) steps.push_back(worker_->step_alone(&shared));
    return steps;
  };
  std::vector<StepTimes> steps;
  barrier(comm_);
  if (!is_server()) steps = alone();
  std::vector<double> values{median_of(steps, &StepTimes::forward_us),
                             median_of(steps, &StepTimes::backward_us),
                             median_of(steps, &StepTimes::update_us), 0};
  barrier(comm_);
  if (is_first_worker()) {
    StepProfile own = shared;
    const auto single = alone();
    shared = own;
    values[3] = median_of(single, &StepTimes::forward_us) +
                median_of(single, &StepTimes::backward_us) +
                median_of(single, &StepTimes::update_us);
  }
  values.insert(values.end(), shared.stage_forward_us.begin(), shared.stage_forward_us.end());
  for (const auto& gradient : shared.gradients) values.push_back(gradient.ready_us);
  values = max_over_ranks(comm_, std::move(values));
  shared.forward_us = values[0];
  shared.backward_us = values[1];
  shared.update_us = values[2];
  profile_->single_us = values[3];
  profile_->compute_us = values[0] + values[1] + values[2];
  auto next = values.begin() + 4;
  for (double& stage : shared.stage_forward_us) stage = *next++;
  double ready = 0;
  for (auto& gradient : shared.gradients) gradient.ready_us = ready = std::max(ready, *next++);
  // Stages were timed in one step; together they are the forward pass.
  const double sum =
      std::accumulate(shared.stage_forward_us.begin(), shared.stage_forward_us.end(), 0.0);
  for (double& stage : shared.stage_forward_us) stage *= sum > 0 ? shared.forward_us / sum : 1;
}

/// Some steps of the method against one process that does every worker's part in turn.
void TrainingRun::check_oracle(CellRecord& record, const ExchangePlan& plan) {
  if (spec_.oracle == 0) return;
  double difference = 0;
  double wrong = 0;
  if (is_server()) {
    GradientServer(comm_, plan).serve(spec_.oracle);
  } else {
    {
      GradientExchange exchange(comm_, plan, worker_->gradients(), worker_->sums());
      for (int i = 0; i < spec_.oracle; ++i) worker_->step(exchange, crosses_barrier(spec_.method));
      worker_->finish(exchange);
    }
    const auto trained = worker_->weights();
    worker_->reset();
    for (int i = 0; i < spec_.oracle; ++i) worker_->step_of_all();
    const auto expected = worker_->weights();
    for (std::size_t i = 0; i < trained.size(); ++i) {
      const double one = std::abs(static_cast<double>(trained[i]) - expected[i]);
      difference = std::isfinite(one) ? std::max(difference, one) : 1e30;
      wrong += one <= kOracleTolerance ? 0 : 1;
    }
    worker_->reset();
    record.checked += trained.size();
    record.wrong += static_cast<std::uint64_t>(wrong);
  }
  const auto shared = max_over_ranks(comm_, {difference, wrong});
  record.training->max_difference = shared[0];
  if (shared[1] == 0) return;
  record.status = CellStatus::failed;
  record.reason = fmt::format(
      "after {} steps {:.0f} weights differ from the sequential oracle by more than {}, at most by "
      "{:.3g}",
      spec_.oracle, shared[1], kOracleTolerance, shared[0]);
}

int TrainingRun::measured_steps(double step_us) {
  const Protocol& protocol = config_.protocol;
  const double slowest = max_over_ranks(comm_, {step_us})[0];
  if (slowest <= 0) return protocol.iterations;
  const double fitting = protocol.cell_time_cap.count() / slowest;
  const int least = std::min(std::max(protocol.min_iterations, 1), protocol.iterations);
  return static_cast<int>(std::clamp<double>(fitting, least, std::max(protocol.iterations, least)));
}

void TrainingRun::train(CellRecord& record, const ExchangePlan& plan) {
  barrier(comm_);
  if (is_server()) {
    train_as_server(record, plan);
  } else {
    train_as_worker(record, plan);
  }
}

void TrainingRun::train_as_worker(CellRecord& record, const ExchangePlan& plan) {
  const bool crosses = crosses_barrier(spec_.method);
  const Protocol& protocol = config_.protocol;
  GradientExchange exchange(comm_, plan, worker_->gradients(), worker_->sums());
  FigureCollector collector(plan, *profile_);
  const auto phase = [&](int steps, SampleArrays& samples, bool measured) {
    double mean = 0;
    StepTimes now;
    for (int i = 0; i < steps; ++i) {
      if (i + 1 == steps) exchange.take_spans();
      now = worker_->step(exchange, crosses);
      StepTimes end;
      if (i + 1 == steps) end = worker_->finish(exchange);
      const double total_us = now_us() - now.start_us;
      const double busy_us = exchange.take_busy_us();
      now.exposed_us += end.exposed_us;
      now.update_us += end.update_us;
      samples.start_us.push_back(now.start_us - epoch_us_);
      samples.total_us.push_back(total_us);
      samples.collective_us.push_back(busy_us);
      samples.compute_us.push_back(now.forward_us + now.backward_us + now.update_us);
      collector.add(now, measured);
      mean += total_us / steps;
    }
    return mean;
  };
  const double warm_us = phase(protocol.warmup, record.warmup, false);
  const int steps = measured_steps(warm_us);
  const std::uint64_t before = exchange.sent_bytes();
  phase(steps, record.measured, true);
  payload_bytes_ = exchange.sent_bytes() - before;
  collector.add_trace(worker_->stage_spans(), exchange.take_spans(), comm_.rank());
  collector.fill(*record.training, static_cast<double>(payload_bytes_) / steps);
}

void TrainingRun::train_as_server(CellRecord& record, const ExchangePlan& plan) {
  GradientServer server(comm_, plan);
  const auto phase = [&](int steps, SampleArrays& samples) {
    double mean = 0;
    for (const auto& step : server.serve(steps)) {
      samples.start_us.push_back(step.start_us - epoch_us_);
      samples.total_us.push_back(step.end_us - step.start_us);
      samples.collective_us.push_back(step.end_us - step.start_us - step.sum_us);
      samples.compute_us.push_back(step.sum_us);
      mean += (step.end_us - step.start_us) / steps;
    }
    return mean;
  };
  const double warm_us = phase(config_.protocol.warmup, record.warmup);
  const int steps = measured_steps(warm_us);
  const std::uint64_t before = server.sent_bytes();
  phase(steps, record.measured);
  payload_bytes_ = server.sent_bytes() - before;
  record.training->wire_bytes = static_cast<double>(payload_bytes_) / steps;
  record.training->details["buffer_bytes"] = server.buffer_bytes();
}

/// After the last step every worker must have the same bits.
void TrainingRun::compare_ranks(CellRecord& record) {
  std::vector<float> first(
      std::accumulate(profile_->counts.begin(), profile_->counts.end(), std::size_t{0}));
  std::vector<float> own;
  if (!is_server()) own = worker_->weights();
  if (is_first_worker()) first = own;
  comm_.broadcast(first.data(), first.size(), DataType::float32, servers_);
  double wrong = 0;
  const auto bits = [](const float& value) {
    return std::string_view(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (std::size_t i = 0; i < own.size(); ++i) wrong += bits(own[i]) == bits(first[i]) ? 0 : 1;
  record.checked += own.size();
  record.wrong += static_cast<std::uint64_t>(wrong);
  record.training->parameters_sha256 = sha256_hex(
      std::string_view(reinterpret_cast<const char*>(first.data()), first.size() * sizeof(float)));
  const double all = sum_over_ranks(comm_, {wrong})[0];
  if (all == 0 || record.status == CellStatus::failed) return;
  record.status = CellStatus::failed;
  record.reason =
      fmt::format("{:.0f} weights are not the same bits on all workers after the last step", all);
}

CellRecord TrainingRun::run(const WorkCell& cell, int position) {
  CellRecord record;
  record.cell_id = cell.id;
  record.rank = comm_.rank();
  record.position = position;
  record.barrier = "none";
  payload_bytes_ = 0;
  const std::string reason = unsupported(cell);
  // A file that only one rank lacks must not leave the others waiting.
  const double refused = sum_over_ranks(comm_, {reason.empty() ? 0.0 : 1.0})[0];
  if (refused > 0) {
    record.status = CellStatus::unsupported;
    record.reason = reason.empty() ? "another rank cannot run it" : reason;
    return record;
  }
  prepare_model();
  const std::string method = std::string(name_of(spec_.method));
  const auto [link, is_new] = links_.try_emplace(fmt::format("{}|{}", model_key_, method));
  if (is_new) {
    link->second = measure_link(comm_, spec_, servers_, profile_->counts);
    link->second.cores_are_full = threads_ * comm_.size() >= usable_cores();
  }
  const auto plan = make_exchange_plan(spec_, profile_->step.gradients, link->second.time);
  record.algorithm = method;
  TrainingFigures& figures = record.training.emplace();
  figures.role = is_server() ? "server" : "worker";
  figures.single_us = is_server() ? 0 : profile_->single_us;
  figures.compute_us = is_server() ? 0 : profile_->compute_us;
  figures.predicted_us = predicted_step_us(spec_.method, profile_->step, plan.pieces, link->second);
  figures.intensity = facts_of(spec_.model, spec_.sequence).intensity();
  figures.c2c_predicted = c2c_predicted(spec_, workers_);
  check_oracle(record, plan);
  train(record, plan);
  describe(figures, spec_, plan, *profile_, link->second, workers_, threads_);
  if (!is_server()) figures.details["data"] = data_->description();
  if (!is_server()) figures.details["buffer_bytes"] = worker_->buffer_bytes();
  if (config_.protocol.verify) compare_ranks(record);
  if (!is_server() && spec_.evaluate > 0) figures.accuracy = worker_->accuracy(spec_.evaluate);
  barrier(comm_);
  return record;
}

}  // namespace

std::unique_ptr<TrainingRunner> make_training_run(Communicator& comm, const RunConfig& config,
                                                  double epoch_us) {
  return std::make_unique<TrainingRun>(comm, config, epoch_us);
}

}  // namespace dynamiccl
