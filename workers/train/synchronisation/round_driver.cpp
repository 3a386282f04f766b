#include "workers/train/synchronisation/round_driver.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "workers/measure/clock.hpp"
#include "workers/train/exchange/queued_exchange.hpp"
#include "workers/train/synchronisation/averaging.hpp"

namespace dynamiccl {
namespace {

bool has_neighbours(const TrainingSpec& spec) {
  return method_row(spec.method).sums == SumPlace::neighbours;
}

/// Post-local's rounds of plain SGD: it switches between two rounds.
std::uint64_t plain_rounds(const TrainingSpec& spec) {
  if (spec.synchronisation != Synchronisation::post_local) return 0;
  const auto tau = static_cast<std::uint64_t>(spec.local_steps);
  return (static_cast<std::uint64_t>(spec.local_after) + tau - 1) / tau;
}

void add_step(StepTimes& round, const StepTimes& step) {
  round.data_us += step.data_us;
  round.forward_us += step.forward_us;
  round.backward_us += step.backward_us;
  round.update_us += step.update_us;
  round.exposed_us += step.exposed_us;
  round.loss += step.loss;
}

class RoundDriver final : public StepDriver {
 public:
  RoundDriver(Communicator& comm, const ExchangePlan& plan, const TrainingSpec& spec,
              TrainingWorker& worker, Micros silence)
      : comm_(comm), plan_(plan), spec_(spec), worker_(worker) {
    worker_.hold(true, worker_.needs_answers(plan_.servers));
    if (has_neighbours(spec_)) {
      neighbours_.emplace(comm, spec_.topology, plan_.elements(), worker_.seed(), silence);
    } else {
      exchange_ = make_exchange(comm, plan_, worker_.gradients(), worker_.sums(), worker_.memory());
      worker_.begin(*exchange_);
    }
  }
  ~RoundDriver() override {
    exchange_.reset();  // before the buffers that it writes into
    worker_.hold(true, false);
  }
  RoundDriver(const RoundDriver&) = delete;
  RoundDriver& operator=(const RoundDriver&) = delete;

  StepTimes step() override {
    StepTimes round;
    round.start_us = now_us();
    const bool plain = round_ < plain_rounds(spec_);
    const bool skips =
        planted_fault().skip_local_step && worker_.number() == worker_.workers() - 1 && !plain;
    const int steps = spec_.local_steps - (skips ? 1 : 0);
    if (!plain && spec_.slow_momentum > 0 && met_.empty()) {
      const float* weights = worker_.weights_in_order();
      met_.assign(weights, weights + plan_.elements());
      moved_.assign(met_.size(), 0.0F);
      round.update_us += now_us() - round.start_us;
    }
    for (int i = 0; i < steps; ++i)
      add_step(round, plain ? worker_.step(*exchange_, false) : worker_.step_by_itself(true));
    round.loss /= std::max(steps, 1);
    if (!plain) average(round);
    ++round_;
    return round;
  }
  StepTimes finish() override {
    if (exchange_) return worker_.finish(*exchange_);
    return {};
  }
  std::optional<double> take_busy_us() override {
    if (exchange_) return exchange_->take_busy_us();
    return std::exchange(busy_us_, 0);
  }
  void trace_next() override {
    if (exchange_) exchange_->trace_next();
    spans_.clear();
  }
  std::vector<Span> take_spans() override {
    return exchange_ ? exchange_->take_spans() : std::exchange(spans_, {});
  }
  [[nodiscard]] std::uint64_t sent_bytes() const override {
    return exchange_ ? exchange_->sent_bytes() : neighbours_->sent_bytes();
  }
  [[nodiscard]] std::size_t extra_bytes() const override {
    if (!exchange_) return neighbours_->held_bytes();
    return worker_.answer_bytes() + exchange_->extra_bytes() +
           (met_.size() + moved_.size()) * sizeof(float);
  }
  void restarted() override {
    round_ = 0;
    met_.clear();
  }
  void look(TrainingFigures& figures, int rounds) override {
    if (!neighbours_) return;
    auto& gossip = figures.details["gossip"];
    gossip["topology"] = name_of(spec_.topology);
    gossip["spectral_gap"] = spectral_gap(spec_.topology, comm_.size());
    gossip["consensus"].push_back({rounds, consensus_distance(comm_, worker_.weights())});
  }
  void describe(TrainingFigures& figures) const override {
    if (spec_.synchronisation == Synchronisation::post_local)
      figures.details["switched_after_rounds"] = std::min(round_, plain_rounds(spec_));
  }

 private:
  void average(StepTimes& round) {
    const double before_us = now_us();
    const float* own = worker_.weights_in_order();
    const double start_us = now_us();
    round.update_us += start_us - before_us;
    if (neighbours_) {
      const float* mixed = neighbours_->average(round_, own);
      const double end_us = now_us();
      busy_us_ += end_us - start_us;
      spans_.push_back({"reduce", 0, start_us, end_us});
      round.exposed_us += end_us - start_us;
      worker_.take_weights(mixed, 1);
      round.update_us += now_us() - end_us;
      return;
    }
    const std::size_t gradients = plan_.counts.size();
    const bool weighted = spec_.shares != DataShares::equal;
    if (weighted) weigh_own();
    exchange_->start_step();
    for (std::size_t g = 0; g < gradients; ++g) exchange_->ready(g);
    for (std::size_t g = 0; g < gradients; ++g) exchange_->wait(g);
    const double end_us = now_us();
    round.exposed_us += end_us - start_us;
    const auto scale = weighted ? 1.0F : static_cast<float>(1.0 / worker_.workers());
    if (spec_.slow_momentum > 0) {
      const bool forgets =
          planted_fault().forget_slow_momentum && worker_.number() == worker_.workers() - 1;
      slow_step(forgets ? 0 : static_cast<float>(spec_.slow_momentum), worker_.sums(), scale,
                moved_, met_);
      worker_.take_weights(met_.data(), 1);
    } else {
      worker_.take_weights(worker_.sums(), scale);
    }
    round.update_us += now_us() - end_us;
  }
  /// The weights that wait to be summed become this worker's part of the average.
  void weigh_own() {
    const bool fault = planted_fault().equal_share && worker_.number() == worker_.workers() - 1;
    const auto share = static_cast<float>(
        fault ? 1.0 / worker_.workers() : share_of(spec_, worker_.workers(), worker_.number()));
    float* own = worker_.gradients();
    for (std::size_t i = 0; i < plan_.elements(); ++i) own[i] *= share;
  }

  Communicator& comm_;
  ExchangePlan plan_;
  TrainingSpec spec_;
  TrainingWorker& worker_;
  std::optional<NeighbourAverage> neighbours_;
  std::unique_ptr<StepExchange> exchange_;  ///< of all workers, where there are no neighbours
  std::vector<float> met_;                  ///< SlowMo: the weights after the last average
  std::vector<float> moved_;                ///< SlowMo: the momentum of averages
  std::uint64_t round_ = 0;
  double busy_us_ = 0;
  std::vector<Span> spans_;
};

/// A worker of the replay.
struct ReplayedWorker {
  std::vector<float> weights;
  std::vector<float> velocity;
};

class Replay {
 public:
  Replay(const TrainingSpec& spec, TrainingWorker& worker)
      : spec_(spec), worker_(worker), count_(worker.gradient_bytes() / sizeof(float)) {
    const float* start = worker_.weights_in_order();
    const ReplayedWorker one{std::vector<float>(start, start + count_),
                             std::vector<float>(count_, 0.0F)};
    workers_.assign(static_cast<std::size_t>(worker.workers()), one);
  }

  void round(std::uint64_t round) {
    const auto tau = static_cast<std::uint64_t>(spec_.local_steps);
    if (round < plain_rounds(spec_)) {
      for (std::uint64_t i = 0; i < tau; ++i) plain_step(round * tau + i);
      return;
    }
    if (met_.empty()) {
      met_ = workers_.front().weights;
      moved_.assign(count_, 0.0F);
    }
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      enter(workers_[w]);
      for (std::uint64_t i = 0; i < tau; ++i) {
        worker_.compute_for(static_cast<int>(w), round * tau + i);
        worker_.apply_gradients(1);
      }
      leave(workers_[w]);
    }
    has_neighbours(spec_) ? average_neighbours(round) : average_all();
  }

  [[nodiscard]] std::vector<std::vector<float>> weights() const {
    std::vector<std::vector<float>> all;
    for (const auto& worker : workers_) all.push_back(worker.weights);
    return all;
  }

 private:
  void enter(const ReplayedWorker& one) {
    worker_.take_weights(one.weights.data(), 1);
    std::copy(one.velocity.begin(), one.velocity.end(), worker_.velocity());
  }
  void leave(ReplayedWorker& one) {
    std::copy_n(worker_.velocity(), count_, one.velocity.begin());
    std::copy_n(worker_.weights_in_order(), count_, one.weights.begin());
  }
  /// All have the same weights.
  void plain_step(std::uint64_t step) {
    enter(workers_.front());
    std::vector<float> sum(count_, 0.0F);
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      worker_.compute_for(static_cast<int>(w), step);
      const float* gradient = worker_.gradients();
      for (std::size_t i = 0; i < count_; ++i) sum[i] = w == 0 ? gradient[i] : sum[i] + gradient[i];
    }
    std::copy(sum.begin(), sum.end(), worker_.gradients());
    worker_.apply_gradients(worker_.workers());
    leave(workers_.front());
    std::fill(workers_.begin() + 1, workers_.end(), workers_.front());
  }
  void average_all() {
    const bool weighted = spec_.shares != DataShares::equal;
    for (std::size_t w = 0; weighted && w < workers_.size(); ++w) {
      const auto share =
          static_cast<float>(share_of(spec_, worker_.workers(), static_cast<int>(w)));
      for (auto& value : workers_[w].weights) value *= share;
    }
    std::vector<float> sum = workers_.front().weights;
    for (std::size_t w = 1; w < workers_.size(); ++w)
      std::transform(sum.begin(), sum.end(), workers_[w].weights.begin(), sum.begin(),
                     std::plus<>());
    const auto scale = weighted ? 1.0F : static_cast<float>(1.0 / worker_.workers());
    if (spec_.slow_momentum > 0) {
      slow_step(static_cast<float>(spec_.slow_momentum), sum.data(), scale, moved_, met_);
      sum = met_;
    } else {
      for (auto& value : sum) value *= scale;
    }
    for (auto& worker : workers_) worker.weights = sum;
  }
  void average_neighbours(std::uint64_t round) {
    const auto before = weights();
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      const int number = static_cast<int>(w);
      const Mixing mixing =
          mixing_of(spec_.topology, worker_.workers(), number, round, worker_.seed());
      std::vector<const float*> of;
      for (const auto& from : mixing.from)
        of.push_back(before[static_cast<std::size_t>(from.worker)].data());
      mix(mixing, number, before[w].data(), of, workers_[w].weights.data(), count_);
    }
  }

  TrainingSpec spec_;
  TrainingWorker& worker_;
  std::size_t count_;
  std::vector<ReplayedWorker> workers_;
  std::vector<float> met_;  ///< SlowMo: the weights after the last average, and their momentum
  std::vector<float> moved_;
};

}  // namespace

bool goes_by_rounds(const TrainingSpec& spec) {
  return has_local_steps(spec.synchronisation) || has_neighbours(spec);
}

std::unique_ptr<StepDriver> make_round_driver(Communicator& comm, const ExchangePlan& plan,
                                              const TrainingSpec& spec, TrainingWorker& worker,
                                              Micros silence) {
  return std::make_unique<RoundDriver>(comm, plan, spec, worker, silence);
}

std::vector<std::vector<float>> replay_rounds(const TrainingSpec& spec, TrainingWorker& worker,
                                              int rounds) {
  Replay replay(spec, worker);
  for (int round = 0; round < rounds; ++round) replay.round(static_cast<std::uint64_t>(round));
  return replay.weights();
}

}  // namespace dynamiccl
