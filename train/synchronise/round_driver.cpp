#include "train/synchronise/round_driver.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <utility>

#include "train/exchange/outliving.hpp"
#include "train/exchange/queued_exchange.hpp"
#include "train/synchronise/averaging.hpp"
#include "train/synchronise/choco.hpp"
#include "train/synchronise/round_lengths.hpp"
#include "workers/clock.hpp"
#include "workers/standing.hpp"

namespace dynamiccl {
namespace {

bool has_neighbours(const TrainingSpec& spec) {
  return method_row(spec.method).sums == SumPlace::neighbours;
}

/// The last worker does as the fault says.
bool misbehaves(const TrainingWorker& worker, bool planted) {
  return planted && worker.number() == worker.workers() - 1;
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
      : comm_(comm), plan_(plan), spec_(spec), worker_(worker), lengths_(spec) {
    worker_.hold(true, worker_.needs_answers(plan_.servers));
    if (has_neighbours(spec_) && is_coded()) {
      choco_ = make_outliving<ChocoAverage>(comm, plan_, spec_, silence);
    } else if (has_neighbours(spec_)) {
      neighbours_ = make_outliving<NeighbourAverage>(comm, worker_.memory(), spec_.topology,
                                                     plan_.elements(), worker_.seed(), silence);
    } else {
      exchange_ = make_exchange(comm, plan_, worker_.gradients(), worker_.sums(), worker_.memory());
      apply_sums(true);
    }
  }
  ~RoundDriver() override {
    exchange_.reset();  // before the buffers that it writes into
    if (std::uncaught_exceptions() == 0) worker_.hold(true, false);
  }
  RoundDriver(const RoundDriver&) = delete;
  RoundDriver& operator=(const RoundDriver&) = delete;

  StepTimes step() override {
    StepTimes round;
    stand_at_next(Standpoint::step);
    round.start_us = now_us();
    const bool plain = lengths_.plain() || forgot_;
    if (plain) {
      apply_sums(true);
    } else {
      prepare(round);
    }
    int steps = 0;
    if (takes_part()) {
      steps = steps_to_do(plain);
      for (int i = 0; i < steps; ++i) {
        const StepTimes one =
            plain ? worker_.step(*exchange_, false) : worker_.step_by_itself(true);
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
    if (choco_) return choco_->sent_bytes();
    return exchange_ ? exchange_->sent_bytes() : neighbours_->sent_bytes();
  }
  [[nodiscard]] std::size_t extra_bytes() const override {
    if (choco_) return choco_->held_bytes();
    if (!exchange_) return neighbours_->held_bytes();
    return worker_.answer_bytes() + exchange_->extra_bytes() +
           (met_.size() + moved_.size()) * sizeof(float);
  }
  std::optional<CodingFigures> take_coding() override {
    if (choco_) return choco_->take_coding();
    return exchange_ ? exchange_->take_coding() : std::nullopt;
  }
  void restarted() override {
    if (exchange_) exchange_->restart();
    if (choco_) choco_->restart();
    lengths_ = RoundLengths(spec_);
    has_met_ = false;
    loss_ = kNoLoss;
    forgot_ = false;
  }
  [[nodiscard]] int next_steps() const override { return lengths_.steps(); }
  [[nodiscard]] int next_exchanges() const override {
    return lengths_.plain() ? lengths_.steps() : 1;
  }
  void switch_over() override {
    forgot_ = misbehaves(worker_, planted_fault().forget_switch);
    lengths_.switch_over();
    // What each worker's steps of its own had as momentum is not the others'.
    if (lengths_.plain()) memory().clear(worker_.velocity(), plan_.elements());
  }
  void with_judged(const std::function<void()>& judge) override {
    if (!has_centre(spec_.synchronisation) || !has_met_) return judge();
    const std::vector<float> own = worker_.host_weights();
    worker_.take_weights(met_.data(), 1);
    judge();
    worker_.take_host_weights(own.data());
  }
  void conclude() override {
    if (has_centre(spec_.synchronisation) && has_met_) worker_.take_weights(met_.data(), 1);
  }
  [[nodiscard]] RoundLog round_log() const override { return lengths_.log(); }
  [[nodiscard]] std::string broken_rule() override {
    if (spec_.synchronisation != Synchronisation::adacomm) return "";
    const RoundLog& log = lengths_.log();
    // What each rank has is told before sums that need as many values of all.
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
  void look(TrainingFigures& figures, int rounds) override {
    if (!has_neighbours(spec_)) return;
    auto& gossip = figures.details["gossip"];
    gossip["topology"] = name_of(spec_.topology);
    gossip["spectral_gap"] = spectral_gap(spec_.topology, comm_.size());
    gossip["consensus"].push_back({rounds, consensus_distance(comm_, worker_.weights())});
    if (spec_.epochs > 0) gossip["mean_accuracies"].push_back({rounds, accuracy_of_mean()});
  }
  void describe(TrainingFigures& figures) const override {
    if (spec_.synchronisation == Synchronisation::post_local)
      figures.details["switched_after_rounds"] =
          std::min(lengths_.rounds(), lengths_.plain_rounds());
    if (!lengths_.log().empty()) figures.details["round_steps"] = lengths_.log();
    if (const std::size_t bytes = exchange_ ? exchange_->staging_bytes() : 0; bytes > 0)
      figures.details["staging_bytes"] = bytes;
  }

 private:
  /// Of the workers' mean, which is what D-PSGD is published to end with; training goes on from
  /// each worker's own weights.
  double accuracy_of_mean() {
    const std::vector<float> own = worker_.host_weights();
    worker_.take_host_weights(mean_weights(comm_, own).data());
    const int samples = spec_.evaluate > 0 ? spec_.evaluate : std::numeric_limits<int>::max();
    const double accuracy = worker_.accuracy(samples);
    worker_.take_host_weights(own.data());
    return -max_over_ranks(comm_, {-accuracy})[0];
  }
  [[nodiscard]] int steps_to_do(bool plain) const {
    if (forgot_) return 1;  // as many messages as others' rounds have
    if (misbehaves(worker_, planted_fault().keep_rounds)) return spec_.local_steps;
    return lengths_.steps() -
           (misbehaves(worker_, planted_fault().skip_local_step && !plain) ? 1 : 0);
  }
  /// The weights before a round, where averages go on from them.
  void prepare(StepTimes& round) {
    if (choco_ && !choco_->has_begun()) choco_->begin(worker_.host_weights());
    if (has_met_ || choco_) return;
    if (spec_.slow_momentum <= 0 && !has_centre(spec_.synchronisation) && !is_coded()) return;
    const double start_us = now_us();
    const std::size_t count = plan_.elements();
    met_.resize(memory(), count);
    memory().copy(worker_.weights_in_order(), met_.data(), count);
    if (spec_.slow_momentum > 0) {
      moved_.resize(memory(), count);
      memory().clear(moved_.data(), count);
    }
    memory().complete();
    has_met_ = true;
    round.update_us += now_us() - start_us;
  }
  TensorMemory& memory() { return worker_.memory(); }
  /// What is exchanged is how far weights went since the last meeting.
  [[nodiscard]] bool is_coded() const { return plan_.codec.codec != Codec::none; }
  /// What the exchange sums is gradients, applied by who applies them in a step that all do
  /// together, or weights, which are nobody's to apply.
  void apply_sums(bool gradients) {
    if (!exchange_ || applies_ == gradients) return;
    applies_ = gradients;
    if (gradients) {
      worker_.begin(*exchange_);
    } else {
      exchange_->apply_by({});
    }
  }
  [[nodiscard]] bool takes_part() const {
    if (spec_.participants == 0 || misbehaves(worker_, planted_fault().uninvited)) return true;
    const auto all = participants_of(spec_, worker_.workers(), lengths_.rounds(), worker_.seed());
    return std::find(all.begin(), all.end(), worker_.number()) != all.end();
  }
  void average(StepTimes& round) {
    const double before_us = now_us();
    const float* own = worker_.weights_in_order();
    const double start_us = now_us();
    round.update_us += start_us - before_us;
    if (neighbours_ || choco_) return average_neighbours(round, own);
    const std::size_t gradients = plan_.counts.size();
    if (weighs_workers(spec_)) weigh_own();
    if (is_coded()) take_way_in(memory(), met_.data(), worker_.gradients(), plan_.elements());
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
    take_average();
    round.update_us += now_us() - end_us;
  }
  void average_neighbours(StepTimes& round, const float* own) {
    const double start_us = now_us();
    if (choco_) average_replicas();
    const float* mixed = choco_ ? own : neighbours_->average(lengths_.rounds(), own);
    const double end_us = now_us();
    busy_us_ += end_us - start_us;
    spans_.push_back({"reduce", 0, start_us, end_us});
    round.exposed_us += end_us - start_us;
    worker_.take_weights(mixed, 1);
    memory().complete();
    round.update_us += now_us() - end_us;
  }
  /// Replicas of neighbours' weights lie in host memory.
  void average_replicas() {
    if (!memory().on_gpu()) return choco_->average(worker_.gradients());
    std::vector<float> own = worker_.host_weights();
    choco_->average(own.data());
    worker_.take_host_gradients(own.data());
  }
  void take_average() {
    const auto scale = weighs_workers(spec_) ? 1.0F : static_cast<float>(1.0 / worker_.workers());
    if (has_centre(spec_.synchronisation)) {
      // To where the centre was.
      if (!misbehaves(worker_, planted_fault().stay_away))
        worker_.draw_to(met_.data(), pull_of(spec_, worker_.workers()));
      move_centre_in(memory(), spec_, worker_.sums(), scale, met_.data(), plan_.elements());
    } else if (spec_.slow_momentum > 0) {
      const bool forgets = misbehaves(worker_, planted_fault().forget_slow_momentum);
      slow_step_in(memory(), forgets ? 0 : static_cast<float>(spec_.slow_momentum), worker_.sums(),
                   scale, moved_.data(), met_.data(), plan_.elements());
      worker_.take_weights(met_.data(), 1);
    } else if (is_coded()) {
      go_way_in(memory(), worker_.sums(), scale, met_.data(), plan_.elements());
      worker_.take_weights(met_.data(), 1);
    } else if (memory().on_gpu()) {
      // One kernel, not one for each parameter.
      memory().blend(worker_.sums(), scale, nullptr, 0, plan_.elements());
      worker_.take_weights(worker_.sums(), 1);
    } else {
      worker_.take_weights(worker_.sums(), scale);
    }
    memory().complete();
  }
  /// The weights that wait to be summed become this worker's part of the average.
  void weigh_own() {
    const int workers = worker_.workers();
    double part = part_of(spec_, workers, worker_.number(), lengths_.rounds(), worker_.seed());
    if (misbehaves(worker_, planted_fault().equal_share)) part = 1.0 / workers;
    if (misbehaves(worker_, planted_fault().uninvited))
      part = share_of(spec_, workers, worker_.number());
    memory().blend(worker_.gradients(), static_cast<float>(part), nullptr, 0, plan_.elements());
  }
  /// Every worker's losses, each in its place, to all.
  void adapt(StepTimes& round) {
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
  ExchangePlan plan_;
  TrainingSpec spec_;
  TrainingWorker& worker_;
  Outliving<NeighbourAverage> neighbours_;
  Outliving<ChocoAverage> choco_;           ///< of neighbours whose messages are encoded
  std::unique_ptr<StepExchange> exchange_;  ///< of all workers, where there are no neighbours
  RoundLengths lengths_;
  FlatBuffer met_;    ///< SlowMo, codecs: the weights after the last average; EASGD: the centre
  FlatBuffer moved_;  ///< SlowMo: the momentum of averages
  bool has_met_ = false;
  bool applies_ = false;   ///< the exchange's sums are gradients
  double loss_ = kNoLoss;  ///< of the last round that it took part in
  double busy_us_ = 0;
  std::vector<Span> spans_;
  bool forgot_ = false;  ///< that workers wait otherwise by now: a planted fault
};

}  // namespace

bool goes_by_rounds(const TrainingSpec& spec) {
  const TrainingSpec after = leg_of(spec, true);
  return has_local_steps(spec.synchronisation) || has_local_steps(after.synchronisation) ||
         has_neighbours(spec);
}

std::unique_ptr<StepDriver> make_round_driver(Communicator& comm, const ExchangePlan& plan,
                                              const TrainingSpec& spec, TrainingWorker& worker,
                                              Micros silence) {
  return std::make_unique<RoundDriver>(comm, plan, spec, worker, silence);
}

}  // namespace dynamiccl
