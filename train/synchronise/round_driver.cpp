#include "train/synchronise/round_driver.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "train/exchange/queued_exchange.hpp"
#include "train/synchronise/averager.hpp"
#include "workers/clock.hpp"
#include "workers/standing.hpp"

namespace dynamiccl {
namespace {

bool has_neighbours(const TrainingSpec& spec) {
  return method_row(spec.method).sums == SumPlace::neighbours;
}

void add_step(StepTimes& round, const StepTimes& step) {
  round.data_us += step.data_us;
  round.forward_us += step.forward_us;
  round.backward_us += step.backward_us;
  round.update_us += step.update_us;
  round.exposed_us += step.exposed_us;
  round.loss += step.loss;
}

/// Rounds that end where all workers meet.
class AllWorkersDriver final : public RoundDriver {
 public:
  AllWorkersDriver(Communicator& comm, const ExchangePlan& plan, const TrainingSpec& spec,
                   TrainingWorker& worker)
      : RoundDriver(plan, spec, worker), comm_(comm), averager_(make_averager(plan, spec, worker)) {
    worker_.hold(true, worker_.needs_answers(plan_.servers));
    exchange_ = make_exchange(comm, plan_, worker_.gradients(), worker_.sums(), worker_.memory());
    apply_sums(true);
  }
  StepTimes finish() override { return worker_.finish(*exchange_); }
  std::optional<double> take_busy_us() override { return exchange_->take_busy_us(); }
  void trace_next() override { exchange_->trace_next(); }
  std::vector<Span> take_spans() override { return exchange_->take_spans(); }
  [[nodiscard]] std::uint64_t sent_bytes() const override { return exchange_->sent_bytes(); }
  [[nodiscard]] std::size_t extra_bytes() const override {
    return worker_.answer_bytes() + exchange_->extra_bytes() +
           averager_->held_floats() * sizeof(float);
  }
  std::optional<CodingFigures> take_coding() override { return exchange_->take_coding(); }
  void restarted() override {
    RoundDriver::restarted();
    exchange_->restart();
    averager_->restart();
  }
  void switch_over() override {
    forgot_ = misbehaves(worker_, "forget-switch");
    lengths_.switch_over();
    // What each worker's steps of its own had as momentum is not the others'.
    if (lengths_.plain()) memory().clear(worker_.velocity(), plan_.elements());
  }
  void with_judged(const std::function<void()>& judge) override {
    const float* centre = averager_->centre();
    if (centre == nullptr) return judge();
    const std::vector<float> own = worker_.host_weights();
    worker_.take_weights(centre, 1);
    judge();
    worker_.take_host_weights(own.data());
  }
  void conclude() override {
    if (const float* centre = averager_->centre()) worker_.take_weights(centre, 1);
  }
  [[nodiscard]] std::string broken_rule() override {
    if (spec_.synchronisation != Synchronisation::adacomm) return "";
    const RoundLog& log = lengths_.log();
    // What each rank has is sent before sums that need as many values of all.
    const auto rounds = static_cast<double>(log.size());
    const auto steps = static_cast<double>(lengths_.step_losses().size());
    const auto most = max_over_ranks(comm_, {rounds, -rounds, steps, -steps});
    if (most[0] != -most[1] || most[2] != -most[3])
      return fmt::format("workers did {} to {} steps in {} to {} rounds", -most[3], most[2],
                         -most[1], most[0]);
    std::vector<double> both(log.begin(), log.end());
    for (const int each : log) both.push_back(-each);
    both = max_over_ranks(comm_, std::move(both));
    for (std::size_t i = 0; i < log.size(); ++i)
      if (const double least = -both[log.size() + i]; both[i] != least)
        return fmt::format("workers did {} to {} steps in round {}", least, both[i], i);
    auto losses = sum_over_ranks(comm_, lengths_.step_losses());
    for (double& loss : losses) loss /= worker_.workers();
    return misfit_of_rounds(spec_, log, losses);
  }
  void describe(TrainingFigures& figures) const override {
    if (!lengths_.log().empty()) figures.details["round_steps"] = lengths_.log();
    if (const std::size_t bytes = exchange_->staging_bytes(); bytes > 0)
      figures.details["staging_bytes"] = bytes;
  }

 private:
  StepTimes plain_step() override {
    apply_sums(true);
    return worker_.step(*exchange_, false);
  }
  void prepare(StepTimes& round) override {
    const double start_us = now_us();
    averager_->prepare();
    round.update_us += now_us() - start_us;
  }
  /// What the exchange sums is gradients, applied by who applies them in a step that all do
  /// together, or weights, which are nobody's to apply.
  void apply_sums(bool gradients) {
    if (applies_ == gradients) return;
    applies_ = gradients;
    if (gradients) {
      worker_.begin(*exchange_);
    } else {
      exchange_->apply_by({});
    }
  }
  void average(StepTimes& round) override {
    const double before_us = now_us();
    worker_.weights_in_order();
    const double start_us = now_us();
    round.update_us += start_us - before_us;
    const std::size_t gradients = plan_.counts.size();
    averager_->offer(lengths_.rounds());
    apply_sums(false);
    exchange_->start_step();
    for (std::size_t g = 0; g < gradients; ++g) {
      if (exchange_->needs_marks()) memory().mark(g);
      exchange_->ready(g);
    }
    for (std::size_t g = 0; g < gradients; ++g) exchange_->wait(g);
    // What a GPU was only given to do is waited for here, as communication.
    memory().complete_or_fail([&] { exchange_->check(); });
    const double end_us = now_us();
    round.exposed_us += end_us - start_us;
    averager_->take();
    memory().complete();
    round.update_us += now_us() - end_us;
  }
  /// Every worker's losses, each in its place, to all.
  void adapt(StepTimes& round) override {
    const double start_us = now_us();
    exchange_->flush();
    const auto own = lengths_.own_losses();
    std::vector<double> all(own.size() * static_cast<std::size_t>(worker_.workers()), 0);
    const auto at = static_cast<std::ptrdiff_t>(own.size()) * worker_.number();
    std::copy(own.begin(), own.end(), all.begin() + at);
    all = sum_over_ranks(comm_, std::move(all));
    std::vector<std::vector<double>> losses;
    for (auto each = all.begin(); each != all.end();
         each += static_cast<std::ptrdiff_t>(own.size()))
      losses.emplace_back(each, each + static_cast<std::ptrdiff_t>(own.size()));
    lengths_.adapt(losses);
    round.exposed_us += now_us() - start_us;
  }

  Communicator& comm_;
  std::unique_ptr<Averager> averager_;
  std::unique_ptr<StepExchange> exchange_;  ///< before the buffers that it writes into are given up
  bool applies_ = false;                    ///< the exchange's sums are gradients
};

}  // namespace

RoundDriver::~RoundDriver() {
  if (std::uncaught_exceptions() == 0) worker_.hold(true, false);
}

StepTimes RoundDriver::step() {
  StepTimes round;
  stand_at_next(Standpoint::step);
  round.start_us = now_us();
  const bool plain = lengths_.plain() || forgot_;
  if (!plain) prepare(round);
  int steps = 0;
  if (takes_part()) {
    steps = steps_to_do(plain);
    for (int i = 0; i < steps; ++i) {
      const StepTimes one = plain ? plain_step() : worker_.step_by_itself(true);
      lengths_.add_loss(one.loss);
      add_step(round, one);
    }
    loss_ = round.loss / std::max(steps, 1);
  }
  round.loss = loss_;
  if (!plain) {
    stand_at(Standpoint::exchange);
    average(round);
  }
  if (lengths_.end_round(steps)) adapt(round);
  return round;
}

void RoundDriver::restarted() {
  lengths_ = RoundLengths(spec_);
  loss_ = kNoLoss;
  forgot_ = false;
}

bool RoundDriver::takes_part() const {
  if (spec_.participants == 0 || misbehaves(worker_, "uninvited")) return true;
  const auto all = participants_of(spec_, worker_.workers(), lengths_.rounds(), worker_.seed());
  return std::find(all.begin(), all.end(), worker_.number()) != all.end();
}

int RoundDriver::steps_to_do(bool plain) const {
  if (forgot_) return 1;  // as many messages as others' rounds have
  if (misbehaves(worker_, "keep-rounds")) return spec_.local_steps;
  const bool skips = !plain && misbehaves(worker_, "skip-local-step");
  return lengths_.steps() - (skips ? 1 : 0);
}

bool goes_by_rounds(const TrainingSpec& spec) {
  const TrainingSpec after = leg_of(spec, true);
  return has_local_steps(spec.synchronisation) || has_local_steps(after.synchronisation) ||
         has_neighbours(spec);
}

std::unique_ptr<StepDriver> make_round_driver(Communicator& comm, const ExchangePlan& plan,
                                              const TrainingSpec& spec, TrainingWorker& worker,
                                              Micros silence) {
  if (has_neighbours(spec)) return make_gossip_driver(comm, plan, spec, worker, silence);
  return std::make_unique<AllWorkersDriver>(comm, plan, spec, worker);
}

}  // namespace dynamiccl
