#include "train/synchronise/step_driver.hpp"

#include <algorithm>

#include "train/exchange/gradient_server.hpp"
#include "train/exchange/queued_exchange.hpp"
#include "workers/clock.hpp"
#include "workers/standing.hpp"

namespace dynamiccl {
namespace {

/// Gives the worker the flat buffers that a driver needs, and in the end the usual ones again.
class HeldBuffers {
 public:
  HeldBuffers(TrainingWorker& worker, bool answers, bool gradients = true) : worker_(worker) {
    worker_.hold(gradients, answers);
  }
  ~HeldBuffers() { worker_.hold(true, false); }
  HeldBuffers(const HeldBuffers&) = delete;
  HeldBuffers& operator=(const HeldBuffers&) = delete;

 private:
  TrainingWorker& worker_;
};

class ExchangeDriver final : public StepDriver {
 public:
  ExchangeDriver(Communicator& comm, const ExchangePlan& plan, TrainingWorker& worker,
                 CallSettings* settings)
      : comm_(comm),
        plan_(plan),
        worker_(worker),
        answers_(worker, worker.needs_answers(plan.servers)),
        crosses_(crosses_barrier(plan.method)),
        settings_(settings),
        exchange_(make_exchange(comm, plan, worker.gradients(), worker.sums(), worker.memory(),
                                settings)) {
    worker_.begin(*exchange_);
    restarted();
  }
  StepTimes step() override {
    stand_at_next(Standpoint::step);
    const StepTimes times = worker_.step(*exchange_, crosses_);
    exchange_->end_step();
    return times;
  }
  StepTimes finish() override {
    const StepTimes times = worker_.finish(*exchange_);
    if (settings_ != nullptr) settings_->release();
    return times;
  }
  std::optional<double> take_busy_us() override { return exchange_->take_busy_us(); }
  void trace_next() override {
    exchange_->trace_next();
    worker_.trace_next();
  }
  std::vector<Span> take_spans() override { return exchange_->take_spans(); }
  [[nodiscard]] std::uint64_t sent_bytes() const override { return exchange_->sent_bytes(); }
  [[nodiscard]] std::size_t extra_bytes() const override {
    return worker_.answer_bytes() + exchange_->extra_bytes();
  }
  void describe(TrainingFigures& figures) const override {
    if (const std::size_t bytes = exchange_->staging_bytes(); bytes > 0)
      figures.details["staging_bytes"] = bytes;
  }
  std::optional<CodingFigures> take_coding() override { return exchange_->take_coding(); }
  void restarted() override {
    exchange_->restart();
    if (!plan_.server_sgd || (!plan_.colocated && comm_.rank() != plan_.first_worker())) return;
    const float* weights = worker_.weights_in_order();
    std::vector<float> on_host;
    if (worker_.memory().on_gpu()) {
      on_host.resize(plan_.elements());
      worker_.memory().to_host(weights, on_host.data(), on_host.size());
      weights = on_host.data();
    }
    if (plan_.colocated) return exchange_->take_weights(weights);
    send_weights(comm_, plan_, weights);
  }

 private:
  Communicator& comm_;
  ExchangePlan plan_;
  TrainingWorker& worker_;
  HeldBuffers answers_;  ///< before the exchange, which writes into them until its end
  bool crosses_;
  CallSettings* settings_;
  std::unique_ptr<StepExchange> exchange_;
};

class EngineDriver final : public StepDriver {
 public:
  EngineDriver(Communicator& comm, const ExchangePlan& plan, const TrainingSpec& spec,
               TrainingWorker& worker, Learner& learner, EngineGroup& group)
      : worker_(worker),
        // The engine's buckets hold the gradients.
        none_(worker, false, false),
        engine_(learner.engine(group, bucket_of(spec))) {
    const auto ranks = static_cast<std::uint64_t>(comm.size());
    for (const auto& piece : plan.pieces)
      step_bytes_ += 2 * piece.count * sizeof(float) * (ranks - 1) / ranks;
  }
  StepTimes step() override {
    stand_at_next(Standpoint::step);
    sent_bytes_ += step_bytes_;
    return worker_.step_by(*engine_);
  }
  StepTimes finish() override { return {}; }
  std::optional<double> take_busy_us() override { return std::nullopt; }
  std::vector<Span> take_spans() override { return {}; }
  [[nodiscard]] std::uint64_t sent_bytes() const override { return sent_bytes_; }
  [[nodiscard]] std::size_t extra_bytes() const override { return 0; }
  void describe(TrainingFigures& figures) const override {
    figures.details["engine"] = "c10d::Reducer over ProcessGroupGloo";
    figures.details["engine_buckets"] = engine_->bucket_bytes();
  }

 private:
  TrainingWorker& worker_;
  HeldBuffers none_;
  std::unique_ptr<DataParallelEngine> engine_;
  std::uint64_t step_bytes_ = 0;  ///< of a ring all-reduce, which is Gloo's
  std::uint64_t sent_bytes_ = 0;
};

}  // namespace

double timed_step(StepDriver& driving, CoreWait& wait, bool is_last, StepTimes& now) {
  if (is_last) driving.trace_next();
  const double waited_before_us = wait.read_us();
  now = driving.step();
  double total_us = now.total_us > 0 ? now.total_us : now_us() - now.start_us;
  if (is_last) {
    const double before_us = now_us();
    const StepTimes end = driving.finish();
    total_us += now_us() - before_us;
    now.exposed_us += end.exposed_us;
    now.update_us += end.update_us;
  }
  if (wait.known()) now.waited_us = std::max(0.0, wait.read_us() - waited_before_us);
  return total_us;
}

std::unique_ptr<StepDriver> make_step_driver(Communicator& comm, const ExchangePlan& plan,
                                             const TrainingSpec& spec, TrainingWorker& worker,
                                             Learner& learner, EngineGroup* engine,
                                             CallSettings* settings) {
  if (!method_row(plan.method).engine)
    return std::make_unique<ExchangeDriver>(comm, plan, worker, settings);
  DYN_ASSERT(engine != nullptr, "ddp needs its ranks joined");
  return std::make_unique<EngineDriver>(comm, plan, spec, worker, learner, *engine);
}

}  // namespace dynamiccl
