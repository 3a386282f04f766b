#include "workers/train/worker_step.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "workers/collectives/sum.hpp"
#include "workers/measure/clock.hpp"
#include "workers/train/sgd.hpp"

namespace dynamiccl {

TrainingWorker::TrainingWorker(const TrainingSpec& spec, Learner& learner, const Dataset& data,
                               int worker, int workers, std::uint64_t seed)
    : spec_(spec),
      learner_(learner),
      data_(data),
      worker_(worker),
      workers_(workers),
      sharding_(data.training_size(), workers, spec.batch, seed) {
  start_weights_ = weights();
}

std::vector<float> TrainingWorker::weights() const {
  std::vector<float> all;
  for (const auto& parameter : learner_.parameters())
    all.insert(all.end(), parameter.data, parameter.data + parameter.count);
  return all;
}

void TrainingWorker::load(int worker) {
  batch_ = Batch{};
  for (int i = 0; i < spec_.batch; ++i) data_.add_to(batch_, sharding_.sample(step_, worker, i));
  learner_.load(batch_);
}

std::vector<int> TrainingWorker::observe_order() {
  std::vector<int> order;
  learner_.on_gradient(
      [&](std::size_t parameter, const float*) { order.push_back(static_cast<int>(parameter)); });
  load(worker_);
  for (int stage = 0; stage < learner_.stages(); ++stage) learner_.forward(stage);
  learner_.loss();
  learner_.backward();
  return order;
}

void TrainingWorker::set_order(const std::vector<int>& order) {
  const auto& parameters = learner_.parameters();
  DYN_ASSERT(order.size() == parameters.size(), "every parameter has one gradient");
  order_ = order;
  position_.assign(order.size(), 0);
  counts_.clear();
  offsets_.clear();
  stage_.clear();
  std::size_t offset = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto parameter = static_cast<std::size_t>(order[i]);
    position_[parameter] = i;
    counts_.push_back(parameters[parameter].count);
    offsets_.push_back(offset);
    stage_.push_back(parameters[parameter].stage);
    offset += parameters[parameter].count;
  }
  gradients_.assign(offset, 0.0F);
  sums_.clear();
  velocity_.assign(offset, 0.0F);
}

void TrainingWorker::hold(bool gradients, bool answers) {
  const auto size = [&](std::vector<float>& buffer, bool wanted) {
    if (wanted) {
      buffer.resize(velocity_.size());
    } else {
      std::vector<float>().swap(buffer);
    }
  };
  size(gradients_, gradients);
  size(sums_, answers);
}

const float* TrainingWorker::weights_in_order() {
  for (std::size_t i = 0; i < counts_.size(); ++i)
    std::copy_n(learner_.parameters()[static_cast<std::size_t>(order_[i])].data, counts_[i],
                &gradients_[offsets_[i]]);
  return gradients_.data();
}

void TrainingWorker::reset() {
  const float* from = start_weights_.data();
  for (const auto& parameter : learner_.parameters()) {
    std::copy_n(from, parameter.count, parameter.data);
    from += parameter.count;
  }
  std::fill(velocity_.begin(), velocity_.end(), 0.0F);
  step_ = 0;
  open_ = false;
}

void TrainingWorker::update_from_sum(std::size_t gradient, const float* sums) {
  update(gradient, sums + offsets_[gradient], static_cast<float>(1.0 / workers_));
}

void TrainingWorker::update(std::size_t gradient, const float* value, float scale) {
  float* weight = learner_.parameters()[static_cast<std::size_t>(order_[gradient])].data;
  float* velocity = &velocity_[offsets_[gradient]];
  const Sgd sgd{static_cast<float>(spec_.learning_rate), static_cast<float>(spec_.momentum)};
  sgd_update(sgd, weight, velocity, value, scale, counts_[gradient]);
}

void TrainingWorker::take_answer(std::size_t gradient) {
  if (spec_.optimizer == OptimizerPlace::worker) return update_from_sum(gradient, sums());
  std::copy_n(sums() + offsets_[gradient], counts_[gradient],
              learner_.parameters()[static_cast<std::size_t>(order_[gradient])].data);
}

/// Waits for and applies the open sums of one stage, or of all (-1), in the order they come.
void TrainingWorker::settle(GradientExchange& exchange, int stage, StepTimes& times) {
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    if (stage >= 0 && stage_[i] != stage) continue;
    const double start_us = now_us();
    exchange.wait(i);
    const double there_us = now_us();
    times.exposed_us += there_us - start_us;
    take_answer(i);
    times.update_us += now_us() - there_us;
  }
}

void TrainingWorker::run_backward(StepTimes& times) {
  times.loss = learner_.loss();
  const double start_us = now_us();
  learner_.backward();
  times.backward_us = now_us() - start_us;
  stage_spans_.push_back({"backward", 0, start_us, start_us + times.backward_us});
}

StepTimes TrainingWorker::step_alone(StepProfile* profile) {
  StepTimes times;
  double backward_start_us = 0;
  learner_.on_gradient([&](std::size_t parameter, const float* gradient) {
    const std::size_t i = position_[parameter];
    std::copy_n(gradient, counts_[i], &gradients_[offsets_[i]]);
    if (profile != nullptr) profile->gradients[i].ready_us = now_us() - backward_start_us;
  });
  times.start_us = now_us();
  load(worker_);
  double before_us = now_us();
  times.forward_us = before_us - times.start_us;
  for (int stage = 0; stage < learner_.stages(); ++stage) {
    learner_.forward(stage);
    const double after_us = now_us();
    times.forward_us += after_us - before_us;
    if (profile != nullptr)
      profile->stage_forward_us[static_cast<std::size_t>(stage)] = after_us - before_us;
    before_us = after_us;
  }
  const double loss_us = now_us();
  times.loss = learner_.loss();
  backward_start_us = now_us();
  times.forward_us += backward_start_us - loss_us;
  learner_.backward();
  const double end_us = now_us();
  times.backward_us = end_us - backward_start_us;
  for (std::size_t i = 0; i < counts_.size(); ++i) update_from_sum(i, gradients_.data());
  times.update_us = now_us() - end_us;
  ++step_;
  return times;
}

/// Loads the batch; a stage waits for its own weights where sums are still open.
void TrainingWorker::run_forward(GradientExchange* exchange, StepTimes& times) {
  stage_spans_.clear();
  load(worker_);
  times.forward_us = now_us() - times.start_us;
  for (int stage = 0; stage < learner_.stages(); ++stage) {
    if (open_ && exchange != nullptr) settle(*exchange, stage, times);
    const double start_us = now_us();
    learner_.forward(stage);
    const double end_us = now_us();
    times.forward_us += end_us - start_us;
    stage_spans_.push_back({"forward", static_cast<std::size_t>(stage), start_us, end_us});
  }
  open_ = false;
}

StepTimes TrainingWorker::step(GradientExchange& exchange, bool crosses) {
  StepTimes times;
  times.start_us = now_us();
  run_forward(&exchange, times);
  learner_.on_gradient([&](std::size_t parameter, const float* gradient) {
    const std::size_t i = position_[parameter];
    float* place = &gradients_[offsets_[i]];
    std::copy_n(gradient, counts_[i], place);
    if (planted_fault().drop_gradient && worker_ == workers_ - 1 && i == 0)
      std::fill_n(place, counts_[i], 0.0F);
    exchange.ready(i);
  });
  exchange.start_step();
  run_backward(times);
  ++step_;
  if (crosses) {
    open_ = true;
  } else {
    settle(exchange, -1, times);
  }
  return times;
}

StepTimes TrainingWorker::step_by(DataParallelEngine& engine) {
  StepTimes times;
  times.start_us = now_us();
  engine.begin_step();
  run_forward(nullptr, times);
  double last_gradient_us = 0;
  learner_.on_gradient([&](std::size_t parameter, const float* gradient) {
    const std::size_t i = position_[parameter];
    if (planted_fault().drop_gradient && worker_ == workers_ - 1 && i == 0)
      std::fill_n(const_cast<float*>(gradient), counts_[i], 0.0F);
    last_gradient_us = now_us();
  });
  run_backward(times);
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
  times.update_us = now_us() - start_us;
  return times;
}

StepTimes TrainingWorker::finish(GradientExchange& exchange) {
  StepTimes times;
  times.start_us = now_us();
  if (open_ && !planted_fault().skip_last_update) settle(exchange, -1, times);
  open_ = false;
  exchange.flush();
  return times;
}

void TrainingWorker::step_of_all() {
  for (int worker = 0; worker < workers_; ++worker) {
    learner_.on_gradient([&](std::size_t parameter, const float* gradient) {
      const std::size_t i = position_[parameter];
      float* sum = &gradients_[offsets_[i]];
      if (worker == 0) {
        std::copy_n(gradient, counts_[i], sum);
      } else {
        sum_elements(sum, sum, gradient, counts_[i], DataType::float32);
      }
    });
    load(worker);
    for (int stage = 0; stage < learner_.stages(); ++stage) learner_.forward(stage);
    learner_.loss();
    learner_.backward();
  }
  for (std::size_t i = 0; i < counts_.size(); ++i) update_from_sum(i, gradients_.data());
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
