#include "train/step/worker_step.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>

#include "workers/clock.hpp"
#include "workers/standing.hpp"

namespace dynamiccl {

TrainingWorker::TrainingWorker(const TrainingSpec& spec, Learner& learner, const Dataset& data,
                               int worker, int workers, std::uint64_t seed)
    : spec_(spec),
      learner_(learner),
      memory_(learner.memory()),
      data_(data),
      worker_(worker),
      workers_(workers),
      sharding_(data.training_size(), workers, spec, seed),
      seed_(seed),
      clock_of_parts_(memory_) {
  std::size_t count = 0;
  for (const auto& parameter : learner_.parameters()) count += parameter.count;
  start_.resize(memory_, count);
  float* to = start_.data();
  for (const auto& parameter : learner_.parameters()) {
    memory_.copy(parameter.data, to, parameter.count);
    to += parameter.count;
  }
}

std::vector<float> TrainingWorker::weights() const {
  std::vector<float> all(start_.size());
  float* to = all.data();
  for (const auto& parameter : learner_.parameters()) {
    memory_.to_host(parameter.data, to, parameter.count);
    to += parameter.count;
  }
  return all;
}

void TrainingWorker::fetch(int worker) {
  samples_.clear();
  for (int i = 0; i < spec_.batch; ++i) samples_.push_back(sharding_.sample(step_, worker, i));
  learner_.fetch(samples_);
  fetched_ = step_;
}

double TrainingWorker::load(int worker) {
  if (learner_.keeps_samples()) {
    if (fetched_ != step_ || worker != worker_) fetch(worker);
    fetched_.reset();
    learner_.load_fetched();
    return 0;
  }
  if (!batches_) batches_.emplace(data_, sharding_, spec_.batch);
  const double start_us = now_us();
  const Batch& batch = batches_->take(step_, worker);
  const double waited_us = now_us() - start_us;
  learner_.load(batch);
  return waited_us;
}

double TrainingWorker::load_own() {
  const double waited_us = load(worker_);
  if (batches_) batches_->start(step_ + 1, worker_);
  return waited_us;
}

std::vector<int> TrainingWorker::observe_order() {
  std::vector<int> order;
  learner_.on_gradient(
      [&](std::size_t parameter, const float*) { order.push_back(static_cast<int>(parameter)); });
  load(worker_);
  for (int stage = 0; stage < learner_.stages(); ++stage) learner_.forward(stage);
  learner_.compute_loss();
  learner_.backward();
  return order;
}

void TrainingWorker::set_order(const std::vector<int>& order) {
  const auto& parameters = learner_.parameters();
  DYN_ASSERT(order.size() == parameters.size(), "every parameter has one gradient");
  order_ = order;
  position_.assign(order.size(), 0);
  counts_.clear();
  rows_.clear();
  offsets_.clear();
  stage_.clear();
  std::size_t offset = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto parameter = static_cast<std::size_t>(order[i]);
    position_[parameter] = i;
    counts_.push_back(parameters[parameter].count);
    rows_.push_back(parameters[parameter].rows);
    offsets_.push_back(offset);
    stage_.push_back(parameters[parameter].stage);
    offset += parameters[parameter].count;
  }
  gradients_.resize(memory_, offset);
  sums_.resize(memory_, 0);
  velocity_.resize(memory_, offset);
  memory_.clear(velocity_.data(), offset);
}

void TrainingWorker::hold(bool gradients, bool answers) {
  gradients_.resize(memory_, gradients ? velocity_.size() : 0);
  sums_.resize(memory_, answers ? velocity_.size() : 0);
}

const float* TrainingWorker::weights_in_order() {
  for (std::size_t i = 0; i < counts_.size(); ++i)
    memory_.copy_later(learner_.parameters()[static_cast<std::size_t>(order_[i])].data,
                       gradients_.at(offsets_[i]), counts_[i]);
  memory_.flush_copies();
  return gradients_.data();
}

std::vector<float> TrainingWorker::host_copy(const float* of) {
  std::vector<float> all(velocity_.size());
  memory_.to_host(of, all.data(), all.size());
  return all;
}

std::vector<float> TrainingWorker::host_weights() { return host_copy(weights_in_order()); }

void TrainingWorker::take_host_weights(const float* in_order) {
  if (!memory_.on_gpu()) return take_weights(in_order, 1);
  take_host_gradients(in_order);
  take_weights(gradients_.data(), 1);
}

void TrainingWorker::take_host_gradients(const float* in_order) {
  memory_.from_host(in_order, gradients_.data(), gradients_.size());
}

void TrainingWorker::reset() {
  const float* from = start_.data();
  for (const auto& parameter : learner_.parameters()) {
    memory_.copy(from, parameter.data, parameter.count);
    from += parameter.count;
  }
  memory_.clear(velocity_.data(), velocity_.size());
  learner_.reset_statistics();
  step_ = 0;
  fetched_.reset();
  open_ = false;
}

void TrainingWorker::update_from_sum(std::size_t gradient, const float* sums) {
  update(gradient, sums + offsets_[gradient], static_cast<float>(1.0 / workers_));
}

/// A GPU's velocity is that of gradients before they are scaled: where another scale comes, as when
/// means of weights follow sums of gradients, it goes over.
void TrainingWorker::rescale_velocity(float scale) {
  memory_.apply();
  memory_.blend(velocity_.data(), velocity_scale_ / scale, nullptr, 0, velocity_.size());
  velocity_scale_ = scale;
}

std::vector<float> TrainingWorker::host_velocity() {
  std::vector<float> velocity = host_copy(velocity_.data());
  if (memory_.on_gpu())
    for (float& each : velocity) each *= velocity_scale_;
  return velocity;
}

void TrainingWorker::take_host_velocity(const float* in_order) {
  memory_.from_host(in_order, velocity_.data(), velocity_.size());
  velocity_scale_ = 1;
}

void TrainingWorker::update(std::size_t gradient, const float* value, float scale) {
  if (memory_.on_gpu() && scale != velocity_scale_) rescale_velocity(scale);
  float* weight = learner_.parameters()[static_cast<std::size_t>(order_[gradient])].data;
  const Sgd sgd{static_cast<float>(rate_at(spec_, clock_)),
                static_cast<float>(optimizer_momentum(spec_))};
  if (spec_.lars > 0 && rows_[gradient] > 1) {
    scale = lars_scale(spec_.lars, weight, value, scale, counts_[gradient]);
    if (planted_fault("other-layer") && worker_ == workers_ - 1) scale *= 2;
  }
  memory_.update(sgd, weight, velocity_.at(offsets_[gradient]), value, scale, counts_[gradient]);
}

void TrainingWorker::take_answer(std::size_t gradient) {
  if (spec_.optimizer == OptimizerPlace::worker) return update_from_sum(gradient, sums());
  memory_.copy(sums() + offsets_[gradient],
               learner_.parameters()[static_cast<std::size_t>(order_[gradient])].data,
               counts_[gradient]);
}

/// Waits for and applies the open sums of one stage, or of all (-1), in the order they come.
void TrainingWorker::settle(StepExchange& exchange, int stage, StepTimes& times) {
  stand_at(Standpoint::exchange);
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    if (stage >= 0 && stage_[i] != stage) continue;
    const double start_us = now_us();
    exchange.wait(i);
    const double there_us = now_us();
    times.exposed_us += there_us - start_us;
    if (!applied_) take_answer(i);
    times.update_us += now_us() - there_us;
  }
  memory_.apply();
  stand_at(Standpoint::step);
}

template <class F>
double TrainingWorker::span_of(const char* what, std::size_t number, F&& part) {
  const std::size_t from = traces_ ? clock_of_parts_.stamp() : 0;
  const double start_us = now_us();
  part();
  const double end_us = now_us();
  if (traces_) span_stamps_.emplace_back(from, clock_of_parts_.stamp());
  stage_spans_.push_back({what, number, start_us, end_us});
  return end_us - start_us;
}

/// @param start_us of the step: the GPU was idle when it began, so that the two clocks meet there
void TrainingWorker::take_traced_times(double start_us) {
  for (std::size_t i = 0; i < stage_spans_.size(); ++i) {
    stage_spans_[i].start_us = start_us + clock_of_parts_.since_us(span_stamps_[i].first);
    stage_spans_[i].end_us = start_us + clock_of_parts_.since_us(span_stamps_[i].second);
  }
}

void TrainingWorker::end_of(StepPart part) {
  if (memory_.on_gpu()) clock_of_parts_.end_of(part);
}

void TrainingWorker::take_parts(StepTimes& times) {
  if (memory_.on_gpu()) clock_of_parts_.take(times);
}

void TrainingWorker::run_backward(StepTimes& times, StepExchange* exchange) {
  const double start_us = now_us();
  learner_.compute_loss();
  times.forward_us += now_us() - start_us;
  end_of(StepPart::forward);
  times.backward_us = span_of("backward", 0, [&] {
    learner_.backward();
    if (is_slowed_down()) complete_beside(exchange);
  });
  last_backward_us_ = times.backward_us;
}

double TrainingWorker::slow_down(double start_us, StepExchange* exchange) const {
  if (!is_slowed_down()) return 0;
  const double entered_us = now_us();
  // A GPU was given the forward pass, and takes its time only now.
  complete_beside(exchange);
  const double before_us = now_us();
  // The backward pass is still to come: it takes what the last one took.
  const double own_us = std::max(before_us - start_us + last_backward_us_, spec_.pace * 1000);
  const double factor = is_slowed(spec_, workers_, worker_, step_, seed_) ? spec_.slow_factor : 1;
  const double pause_us = start_us + own_us * factor - last_backward_us_ - before_us;
  if (pause_us > 0)
    std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(pause_us));
  return now_us() - entered_us;
}

namespace {

/// Stamps of a step without communication.
enum Stamp : std::size_t { kStart, kBackward, kUpdate, kEnd };

}  // namespace

/// Forward pass of all stages and the loss; the time of each where it is asked for.
void TrainingWorker::forward_alone(StepProfile* profile) {
  load_own();
  const double start_us = now_us();
  for (int stage = 0; stage < learner_.stages(); ++stage) {
    const double before_us = now_us();
    learner_.forward(stage);
    if (profile == nullptr) continue;
    memory_.complete();
    profile->stage_forward_us[static_cast<std::size_t>(stage)] = now_us() - before_us;
  }
  const double paused_us = slow_down(start_us, nullptr);
  if (profile != nullptr && !profile->stage_forward_us.empty())
    profile->stage_forward_us.back() += paused_us;
}

StepTimes TrainingWorker::step_alone(StepProfile* profile) {
  StepTimes times;
  double backward_start_us = 0;
  learner_.on_gradient([&](std::size_t parameter, const float* gradient) {
    const std::size_t i = position_[parameter];
    float* place = gradients_.at(offsets_[i]);
    // As a real step does: what a step with communication is compared with must not be slower.
    if (profile == nullptr) return memory_.copy_later(gradient, place, counts_[i]);
    memory_.copy(gradient, place, counts_[i]);
    // Every piece of a real step waits for these marks.
    memory_.mark(i);
    memory_.complete();
    profile->gradients[i].ready_us = now_us() - backward_start_us;
  });
  memory_.complete();
  clock_ = step_;
  times.start_us = now_us();
  memory_.stamp(kStart);
  forward_alone(profile);
  learner_.compute_loss();
  // Only who looks at parts waits for them.
  if (profile != nullptr) memory_.complete();
  memory_.stamp(kBackward);
  backward_start_us = now_us();
  learner_.backward();
  memory_.flush_copies();
  memory_.stamp(kUpdate);
  for (std::size_t i = 0; i < counts_.size(); ++i) update_from_sum(i, gradients_.data());
  memory_.apply();
  memory_.stamp(kEnd);
  memory_.complete();
  times.forward_us = memory_.between_us(kStart, kBackward);
  times.backward_us = memory_.between_us(kBackward, kUpdate);
  times.update_us = memory_.between_us(kUpdate, kEnd);
  last_backward_us_ = times.backward_us;
  ++step_;
  return times;
}

/// Loads the batch; a stage waits for its own weights where sums are still open.
void TrainingWorker::run_forward(StepExchange* exchange, StepTimes& times) {
  stage_spans_.clear();
  span_stamps_.clear();
  times.data_us = load_own();
  end_of(StepPart::data);
  const double loaded_us = now_us();
  times.forward_us = loaded_us - times.start_us - times.data_us;
  for (int stage = 0; stage < learner_.stages(); ++stage) {
    if (open_ && exchange != nullptr) {
      if (stage > 0) end_of(StepPart::forward);
      settle(*exchange, stage, times);
      end_of(StepPart::wait);
    }
    times.forward_us +=
        span_of("forward", static_cast<std::size_t>(stage), [&] { learner_.forward(stage); });
  }
  times.forward_us += slow_down(loaded_us, exchange);
  open_ = false;
  if (kept_ == nullptr) return;
  complete_beside(exchange);
  kept_->push_back(weights());
}

void TrainingWorker::begin(StepExchange& exchange) {
  // All of them are there before another thread looks at one.
  if (exchange.needs_marks()) memory_.mark(counts_.size() - 1);
  const bool awaited_at_once = crosses_barrier(spec_.method);
  queued_ = 0;
  applied_ = exchange.apply_by([this, awaited_at_once](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) update_from_sum(i, sums());
    queued_ = (queued_ + last - first) % counts_.size();
    // A kernel for each message would take more of the GPU than its update does. But a stage of the
    // next pass that waits for its own weights does not wait for those behind them.
    if (awaited_at_once || queued_ == 0) memory_.apply();
  });
}

namespace {

/// A single message needs the last gradient, whose callback is inside the pass.
bool queued_behind_backward(TrainingMethod method) {
  const auto& row = method_row(method);
  return row.order == SendOrder::after_backward || row.grouping == MessageGrouping::together;
}

template <class F>
double time_of(F&& part) {
  const double start_us = now_us();
  part();
  return now_us() - start_us;
}

}  // namespace

StepTimes TrainingWorker::step(StepExchange& exchange, bool crosses) {
  StepTimes times;
  traces_ = std::exchange(trace_wanted_, false);
  times.start_us = now_us();
  if (memory_.on_gpu()) clock_of_parts_.begin();
  run_forward(&exchange, times);
  clock_ = step_ + (planted_fault("early-rate") && worker_ == workers_ - 1 ? 1 : 0);
  // Notified inside the pass, the thread that sends takes its core, where both have one, and what
  // the library then takes would count as backward.
  const bool told_after = !memory_.on_gpu() && queued_behind_backward(spec_.method);
  std::size_t given = 0;
  learner_.on_gradient([&](std::size_t parameter, const float* gradient) {
    const std::size_t i = position_[parameter];
    float* place = gradients_.at(offsets_[i]);
    memory_.copy_later(gradient, place, counts_[i]);
    const bool dropped = planted_fault("drop-gradient") && worker_ == workers_ - 1 && i == 0;
    const bool is_last = ++given == counts_.size();
    if (dropped || is_last || exchange.needs_marks()) memory_.flush_copies();
    if (dropped) memory_.clear(place, counts_[i]);
    // The host may still be on its way out of the pass when the GPU sums what it was given.
    if (is_last) end_of(StepPart::backward);
    if (exchange.needs_marks()) memory_.mark(i);
    if (!told_after) exchange.ready(i);
  });
  // Who wakes the other thread may wait for the core that it gave away: for communication.
  times.exposed_us += time_of([&] { exchange.start_step(); });
  run_backward(times, &exchange);
  times.exposed_us += time_of([&] {
    for (std::size_t i = 0; told_after && i < counts_.size(); ++i) exchange.ready(i);
  });
  end_of(crosses ? StepPart::backward : StepPart::wait);
  ++step_;
  // Behind the backward pass, while the last sums are on their way.
  if (learner_.keeps_samples()) fetch(worker_);
  end_of(StepPart::data);
  if (crosses) {
    open_ = true;
  } else {
    settle(exchange, -1, times);
    end_of(StepPart::wait);
  }
  // A GPU's step ends when it has been computed, not when it has been queued; where another rank
  // has died, never.
  memory_.complete_or_fail([&] { exchange.check(); });
  times.total_us = now_us() - times.start_us;
  take_parts(times);
  if (std::exchange(traces_, false)) take_traced_times(times.start_us);
  times.loss = learner_.loss();
  return times;
}

StepTimes TrainingWorker::step_by(DataParallelEngine& engine) {
  StepTimes times;
  times.start_us = now_us();
  engine.begin_step();
  clock_ = step_;
  run_forward(nullptr, times);
  double last_gradient_us = 0;
  learner_.on_gradient([&](std::size_t parameter, const float* gradient) {
    const std::size_t i = position_[parameter];
    if (planted_fault("drop-gradient") && worker_ == workers_ - 1 && i == 0)
      std::fill_n(const_cast<float*>(gradient), counts_[i], 0.0F);
    last_gradient_us = now_us();
  });
  run_backward(times, nullptr);
  // The engine ends the pass by waiting for its buckets: past the last gradient nothing computes.
  Span& backward = stage_spans_.back();
  times.exposed_us = backward.end_us - last_gradient_us;
  times.backward_us -= times.exposed_us;
  const Span wait{"wait", 0, last_gradient_us, std::exchange(backward.end_us, last_gradient_us)};
  stage_spans_.push_back(wait);
  ++step_;
  const double start_us = now_us();
  for (std::size_t i = 0; i < counts_.size(); ++i)
    update(i, engine.average(static_cast<std::size_t>(order_[i])), 1.0F);
  engine.end_step();
  memory_.complete();
  times.loss = learner_.loss();
  times.update_us = now_us() - start_us;
  return times;
}

StepTimes TrainingWorker::step_by_itself(bool apply) {
  StepTimes times;
  clock_ = step_;
  times.start_us = now_us();
  if (memory_.on_gpu()) clock_of_parts_.begin();
  run_forward(nullptr, times);
  learner_.on_gradient([&](std::size_t parameter, const float* gradient) {
    const std::size_t i = position_[parameter];
    memory_.copy_later(gradient, gradients_.at(offsets_[i]), counts_[i]);
  });
  run_backward(times, nullptr);
  memory_.flush_copies();
  end_of(StepPart::backward);
  ++step_;
  if (learner_.keeps_samples()) fetch(worker_);
  end_of(StepPart::data);
  const double start_us = now_us();
  if (apply) apply_gradients(1);
  end_of(StepPart::update);
  // A GPU's step ends when it has been computed, not when it has been queued.
  memory_.complete();
  times.update_us = now_us() - start_us;
  take_parts(times);
  times.loss = learner_.loss();
  return times;
}

double TrainingWorker::compute_for(int worker, std::uint64_t step) {
  step_ = clock_ = step;
  learner_.on_gradient([&](std::size_t parameter, const float* gradient) {
    const std::size_t i = position_[parameter];
    memory_.copy(gradient, gradients_.at(offsets_[i]), counts_[i]);
  });
  load(worker);
  for (int stage = 0; stage < learner_.stages(); ++stage) learner_.forward(stage);
  learner_.compute_loss();
  learner_.backward();
  memory_.complete();
  return learner_.loss();
}

void TrainingWorker::apply_gradients(int over) { apply(gradients_.data(), over); }

void TrainingWorker::apply(const float* sums, int over) {
  for (std::size_t i = 0; i < counts_.size(); ++i)
    update(i, sums + offsets_[i], static_cast<float>(1.0 / over));
  memory_.apply();
}

void TrainingWorker::take_weights(const float* in_order, float scale) {
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    float* weight = learner_.parameters()[static_cast<std::size_t>(order_[i])].data;
    const float* from = in_order + offsets_[i];
    if (memory_.on_gpu() && scale == 1) {
      memory_.copy_later(from, weight, counts_[i]);
    } else {
      memory_.blend(weight, 0, from, scale, counts_[i]);
    }
  }
  memory_.flush_copies();
}

void TrainingWorker::draw_to(const float* in_order, float part) {
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    float* weight = learner_.parameters()[static_cast<std::size_t>(order_[i])].data;
    const float* to = in_order + offsets_[i];
    if (memory_.on_gpu()) {
      memory_.blend(weight, 1 - part, to, part, counts_[i]);
    } else {
      draw(weight, to, part, counts_[i]);
    }
  }
}

StepTimes TrainingWorker::finish(StepExchange& exchange) {
  StepTimes times;
  times.start_us = now_us();
  if (open_ && !planted_fault("skip-last-update")) settle(exchange, -1, times);
  open_ = false;
  exchange.flush();
  if (planted_fault("off-by-one-bit") && worker_ == workers_ - 1) add_lowest_bit();
  return times;
}

void TrainingWorker::add_lowest_bit() {
  float* weight = learner_.parameters().front().data;
  float value = 0;
  memory_.to_host(weight, &value, 1);
  value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) + 1);
  memory_.from_host(&value, weight, 1);
}

void TrainingWorker::step_of_all() {
  clock_ = step_;
  for (int worker = 0; worker < workers_; ++worker) {
    learner_.on_gradient([&](std::size_t parameter, const float* gradient) {
      const std::size_t i = position_[parameter];
      float* sum = gradients_.at(offsets_[i]);
      if (worker == 0) {
        memory_.copy(gradient, sum, counts_[i]);
      } else {
        memory_.add(sum, gradient, counts_[i]);
      }
    });
    load(worker);
    for (int stage = 0; stage < learner_.stages(); ++stage) learner_.forward(stage);
    learner_.compute_loss();
    learner_.backward();
    memory_.complete();
  }
  for (std::size_t i = 0; i < counts_.size(); ++i) update_from_sum(i, gradients_.data());
  memory_.apply();
  ++step_;
}

double TrainingWorker::accuracy(int samples) {
  const auto wanted = std::min(static_cast<std::size_t>(samples), data_.held_out_size());
  constexpr std::size_t kAtOnce = 64;
  double right = 0;
  for (std::size_t at = 0; at < wanted; at += kAtOnce) {
    Batch batch;
    for (std::size_t i = at; i < std::min(wanted, at + kAtOnce); ++i)
      data_.add_to(batch, data_.training_size() + i);
    right += learner_.accuracy(batch) * batch.count;
  }
  return wanted == 0 ? -1 : right / static_cast<double>(wanted);
}

}  // namespace dynamiccl
