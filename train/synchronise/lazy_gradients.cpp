#include "train/synchronise/lazy_gradients.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "train/synchronise/message_buffers.hpp"
#include "workers/clock.hpp"
#include "workers/collectives/sum.hpp"
#include "workers/standing.hpp"
#include "workers/tags.hpp"

namespace dynamiccl {
namespace {

constexpr int kLazyServer = 0;

double square_of(const float* values, std::size_t count) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += static_cast<double>(values[i]) * values[i];
  return sum;
}

class LazyServer final : public StepServer {
 public:
  LazyServer(Messages& comm, const ExchangePlan& plan, Micros silence)
      : comm_(comm),
        silence_(silence),
        sum_(plan.elements()),
        told_(static_cast<std::size_t>(comm.size() - 1)),
        last_(told_.size(), std::vector<float>(plan.elements())) {}
  /// All workers send in their first step.
  void take_weights() override {}
  [[nodiscard]] std::uint64_t sent_bytes() const override { return sent_bytes_; }
  [[nodiscard]] std::size_t held_bytes() const override {
    return (last_.size() + 1) * sum_.size() * sizeof(float);
  }
  [[nodiscard]] std::size_t shard_bytes() const override { return sum_.size() * sizeof(float); }

 private:
  double serve_step() override {
    receive();
    const double start_us = now_us();
    sum_ = last_.front();
    for (std::size_t w = 1; w < last_.size(); ++w)
      sum_elements(sum_.data(), sum_.data(), last_[w].data(), sum_.size(), DataType::float32);
    const double sum_us = now_us() - start_us;
    answer();
    return sum_us;
  }
  static int rank_of(std::size_t worker) { return static_cast<int>(worker) + 1; }
  void receive() {
    stand_at_next(Standpoint::gradients);
    std::vector<std::pair<Request, int>> heads;
    for (std::size_t w = 0; w < told_.size(); ++w)
      heads.emplace_back(comm_.irecv(&told_[w], sizeof told_[w], rank_of(w), kPushTag), rank_of(w));
    std::vector<std::pair<Request, int>> gradients;
    for (std::size_t w = 0; w < told_.size(); ++w) {
      comm_.wait_within(heads[w].first, heads[w].second, silence_);
      if (told_[w] != 0)
        gradients.emplace_back(
            comm_.irecv(last_[w].data(), last_[w].size() * sizeof(float), rank_of(w), kPieceTag),
            rank_of(w));
    }
    for (const auto& [request, rank] : gradients) comm_.wait_within(request, rank, silence_);
  }
  void answer() {
    std::vector<std::pair<Request, int>> sums;
    for (std::size_t w = 0; w < told_.size(); ++w) {
      sums.emplace_back(
          comm_.isend(sum_.data(), sum_.size() * sizeof(float), rank_of(w), kPieceTag), rank_of(w));
      sent_bytes_ += sum_.size() * sizeof(float);
    }
    for (const auto& [request, rank] : sums) comm_.wait_within(request, rank, silence_);
  }

  Messages& comm_;
  Micros silence_;
  std::vector<float> sum_;
  std::vector<std::uint32_t> told_;  ///< whether each worker's gradient follows
  std::vector<std::vector<float>> last_;
  std::uint64_t sent_bytes_ = 0;
};

/// What a worker of LAG has besides its buffers, which the library may use when an error ends the
/// cell.
struct LazyState {
  explicit LazyState(TrainingWorker& worker) : buffers(worker) {}
  MessageBuffers buffers;
  std::vector<float> sent;
  std::uint32_t tells = 0;
};

class LazyDriver final : public StepDriver {
 public:
  LazyDriver(Messages& comm, const ExchangePlan& plan, const TrainingSpec& spec,
             TrainingWorker& worker, Micros silence)
      : comm_(comm),
        worker_(worker),
        silence_(silence),
        count_(plan.elements()),
        spec_(spec),
        rule_(spec),
        state_(make_outliving<LazyState>(worker)) {}
  ~LazyDriver() override {
    if (std::uncaught_exceptions() == 0) worker_.hold(true, false);
  }
  LazyDriver(const LazyDriver&) = delete;
  LazyDriver& operator=(const LazyDriver&) = delete;

  StepTimes step() override {
    stand_at_next(Standpoint::step);
    StepTimes times = worker_.step_by_itself(false);
    const double computed_us = now_us();
    state_->buffers.fetch();
    const float* gradients = state_->buffers.gradients();
    bool sends = rule_.sends(gradients, state_->sent);
    if (planted_fault("send-nothing") && worker_.number() == worker_.workers() - 1)
      sends = log_.empty();
    if (sends) state_->sent.assign(gradients, gradients + count_);
    log_.push_back(sends ? 1 : 0);
    const double start_us = now_us();
    swap(sends);
    state_->buffers.bring();
    const double there_us = now_us();
    worker_.apply(worker_.sums(), worker_.workers());
    note_movement();
    times.exposed_us = there_us - start_us;
    times.update_us += start_us - computed_us + now_us() - there_us;
    busy_us_ += times.exposed_us;
    spans_.push_back({"reduce", 0, start_us, there_us});
    return times;
  }
  StepTimes finish() override { return {}; }
  std::optional<double> take_busy_us() override { return std::exchange(busy_us_, 0); }
  void trace_next() override { spans_.clear(); }
  std::vector<Span> take_spans() override { return std::exchange(spans_, {}); }
  [[nodiscard]] std::uint64_t sent_bytes() const override { return sent_bytes_; }
  [[nodiscard]] std::size_t extra_bytes() const override {
    return worker_.answer_bytes() + state_->sent.size() * sizeof(float);
  }
  void restarted() override {
    state_->sent.clear();
    log_.clear();
    rule_ = LazyRule(spec_);
  }
  [[nodiscard]] RoundLog round_log() const override { return log_; }
  void describe(TrainingFigures& figures) const override {
    figures.details["lag"] = {{"steps", log_.size()},
                              {"sent", std::accumulate(log_.begin(), log_.end(), 0)},
                              {"log", log_}};
  }

 private:
  void note_movement() {
    if (!worker_.memory().on_gpu()) return rule_.moved(worker_.velocity(), count_);
    rule_.moved(worker_.host_velocity().data(), count_);
  }
  void swap(bool sends) {
    stand_at(Standpoint::exchange);
    const std::size_t bytes = count_ * sizeof(float);
    const Request sum = comm_.irecv(state_->buffers.answers(), bytes, kLazyServer, kPieceTag);
    state_->tells = sends ? 1 : 0;
    std::vector<Request> requests{
        comm_.isend(&state_->tells, sizeof state_->tells, kLazyServer, kPushTag)};
    if (sends) {
      requests.push_back(comm_.isend(state_->buffers.gradients(), bytes, kLazyServer, kPieceTag));
      sent_bytes_ += bytes;
    }
    requests.push_back(sum);
    for (const Request request : requests) comm_.wait_within(request, kLazyServer, silence_);
  }

  Messages& comm_;
  TrainingWorker& worker_;
  Micros silence_;
  std::size_t count_;
  TrainingSpec spec_;
  LazyRule rule_;
  Outliving<LazyState> state_;
  RoundLog log_;
  double busy_us_ = 0;
  std::vector<Span> spans_;
  std::uint64_t sent_bytes_ = 0;
};

}  // namespace

LazyRule::LazyRule(const TrainingSpec& spec)
    : threshold_(spec.lag_threshold * std::pow(std::max(0.0, 1 - optimizer_momentum(spec)), 2)) {}

bool LazyRule::sends(const float* gradient, const std::vector<float>& sent) const {
  if (sent.empty() || movements_.empty()) return true;
  double change = 0;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const double one = static_cast<double>(gradient[i]) - sent[i];
    change += one * one;
  }
  const double mean = std::accumulate(movements_.begin(), movements_.end(), 0.0) /
                      static_cast<double>(movements_.size());
  return change > threshold_ * mean;
}

void LazyRule::moved(const float* velocity, std::size_t count) {
  movements_.push_back(square_of(velocity, count));
  if (movements_.size() > kLagWindow) movements_.pop_front();
}

Outliving<StepServer> make_lazy_server(Messages& comm, const ExchangePlan& plan, Micros silence) {
  return Outliving<StepServer>(new LazyServer(comm, plan, silence));
}

std::unique_ptr<StepDriver> make_lazy_driver(Messages& comm, const ExchangePlan& plan,
                                             const TrainingSpec& spec, TrainingWorker& worker,
                                             Micros silence) {
  return std::make_unique<LazyDriver>(comm, plan, spec, worker, silence);
}

ReplayedRounds replay_lazily(const TrainingSpec& spec, TrainingWorker& worker, int steps,
                             const StatesAfter& after) {
  const auto workers = static_cast<std::size_t>(worker.workers());
  const std::size_t count = worker.gradient_bytes() / sizeof(float);
  std::vector<std::vector<float>> sent(workers);
  std::vector<LazyRule> rules(workers, LazyRule(spec));
  ReplayedRounds replayed;
  replayed.log.resize(workers);
  std::vector<float> sum(count);
  for (int step = 0; step < steps; ++step) {
    for (std::size_t w = 0; w < workers; ++w) {
      worker.compute_for(static_cast<int>(w), static_cast<std::uint64_t>(step));
      const std::vector<float> gradient = worker.host_gradients();
      const bool sends = rules[w].sends(gradient.data(), sent[w]);
      replayed.log[w].push_back(sends ? 1 : 0);
      if (sends) sent[w] = gradient;
      for (std::size_t i = 0; i < count; ++i) sum[i] = w == 0 ? sent[w][i] : sum[i] + sent[w][i];
    }
    worker.take_host_gradients(sum.data());
    worker.apply_gradients(worker.workers());
    const std::vector<float> velocity = worker.host_velocity();
    for (auto& rule : rules) rule.moved(velocity.data(), count);
    const std::vector<float> own = worker.host_weights();
    replayed.own.insert(replayed.own.end(), own.begin(), own.end());
    if (step + 1 == steps) break;
    // All have the same.
    const WorkerState state = std::move(after(static_cast<std::size_t>(step)).front());
    worker.take_host_weights(state.weights.data());
    if (!state.velocity.empty()) worker.take_host_velocity(state.velocity.data());
  }
  return replayed;
}

}  // namespace dynamiccl
