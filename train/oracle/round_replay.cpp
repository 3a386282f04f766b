#include "train/oracle/round_replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "train/oracle/codec_replay.hpp"
#include "train/synchronise/averager.hpp"
#include "train/synchronise/averaging.hpp"
#include "train/synchronise/choco.hpp"
#include "train/synchronise/round_lengths.hpp"

namespace dynamiccl {
namespace {

/// A worker of the replay.
struct ReplayedWorker {
  std::vector<float> weights;
  std::vector<float> velocity;
  std::vector<float> moved;  ///< D2: by the last average
  std::uint64_t step = 0;    ///< of its data
  RoundLengths lengths;      ///< which know its losses
};

class Replay {
 public:
  Replay(const ExchangePlan& plan, const TrainingSpec& spec, TrainingWorker& worker)
      : spec_(spec), worker_(worker), count_(worker.gradient_bytes() / sizeof(float)) {
    const ReplayedWorker one{
        worker_.host_weights(), std::vector<float>(count_, 0.0F), {}, 0, RoundLengths(spec)};
    workers_.assign(static_cast<std::size_t>(worker.workers()), one);
    if (plan.codec.codec == Codec::none) return;
    coded_.emplace(plan, worker.workers());
    known_.resize(workers_.size());
    for (auto& state : known_) state.begin(one.weights);
  }

  void switch_over() {
    for (auto& one : workers_) {
      one.lengths.switch_over();
      if (one.lengths.plain()) std::fill(one.velocity.begin(), one.velocity.end(), 0.0F);
    }
  }

  /// @param logged steps of the round; 0: as the rule says
  void round(int logged, std::string& broken) {
    const std::uint64_t round = lengths().rounds();
    if (logged > 0) follow(logged, round, broken);
    const int steps = lengths().steps();
    if (lengths().plain()) {
      for (int i = 0; i < steps; ++i) plain_step();
    } else {
      if (met_.empty()) {
        met_ = workers_.front().weights;
        moved_.assign(count_, 0.0F);
      }
      for (const int w : participants_of(spec_, worker_.workers(), round, worker_.seed()))
        local_steps(w, steps);
      neighbours() ? average_neighbours(round) : average_all(round);
    }
    bool wanted = false;
    for (auto& one : workers_) wanted = one.lengths.end_round(steps);
    losses_.clear();
    for (const auto& one : workers_)
      if (wanted) losses_.push_back(one.lengths.own_losses());
    before_ = lengths();
    for (auto& one : workers_)
      if (wanted) one.lengths.adapt(losses_);
  }

  [[nodiscard]] const std::vector<float>& weights_of(std::size_t worker) const {
    return workers_[worker].weights;
  }
  [[nodiscard]] std::vector<float> centre() const {
    return has_centre(spec_.synchronisation) ? met_ : std::vector<float>{};
  }
  void go_on_from(std::vector<WorkerState> states) {
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      workers_[w].weights = std::move(states[w].weights);
      if (!states[w].velocity.empty()) workers_[w].velocity = std::move(states[w].velocity);
    }
    if (spec_.slow_momentum > 0 && !met_.empty()) met_ = workers_.front().weights;
  }

 private:
  [[nodiscard]] const RoundLengths& lengths() const { return workers_.front().lengths; }
  [[nodiscard]] bool neighbours() const {
    return method_row(spec_.method).sums == SumPlace::neighbours;
  }
  /// The log's length must be the rule's by these losses, or by those that differ in roundings.
  void follow(int logged, std::uint64_t round, std::string& broken) {
    if (lengths().steps() == logged) return;
    const bool could = !losses_.empty() && before_.could_adapt_to(logged, losses_);
    if (!could && broken.empty())
      broken = fmt::format("round {} had {} steps, by its losses the rule gives {}", round, logged,
                           lengths().steps());
    for (auto& one : workers_) one.lengths.follow(logged);
  }
  void enter(const ReplayedWorker& one) {
    worker_.take_host_weights(one.weights.data());
    worker_.take_host_velocity(one.velocity.data());
  }
  void leave(ReplayedWorker& one) {
    one.velocity = worker_.host_velocity();
    one.weights = worker_.host_weights();
  }
  void local_steps(int w, int steps) {
    ReplayedWorker& one = workers_[static_cast<std::size_t>(w)];
    enter(one);
    for (int i = 0; i < steps; ++i) {
      one.lengths.add_loss(worker_.compute_for(w, one.step++));
      worker_.apply_gradients(1);
    }
    leave(one);
  }
  /// All have the same weights and momentum.
  void plain_step() {
    enter(workers_.front());
    std::vector<float> sum(count_, 0.0F);
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      worker_.compute_for(static_cast<int>(w), workers_[w].step++);
      const std::vector<float> gradient = worker_.host_gradients();
      for (std::size_t i = 0; i < count_; ++i) sum[i] = w == 0 ? gradient[i] : sum[i] + gradient[i];
    }
    worker_.take_host_gradients(sum.data());
    worker_.apply_gradients(worker_.workers());
    leave(workers_.front());
    for (auto& one : workers_) {
      one.weights = workers_.front().weights;
      one.velocity = workers_.front().velocity;
    }
  }
  void average_all(std::uint64_t round) {
    const bool weighted = weighs_workers(spec_);
    std::vector<float> sum(count_);
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      const auto part =
          weighted ? static_cast<float>(part_of(spec_, worker_.workers(), static_cast<int>(w),
                                                round, worker_.seed()))
                   : 1.0F;
      const std::vector<float>& own = workers_[w].weights;
      for (std::size_t i = 0; i < count_; ++i) {
        const float value = weighted ? own[i] * part : own[i];
        sum[i] = w == 0 ? value : sum[i] + value;
      }
    }
    ReplayedMeeting meeting{spec_,  weighted ? 1.0F : static_cast<float>(1.0 / worker_.workers()),
                            sum,    met_,
                            moved_, {}};
    for (auto& one : workers_) meeting.weights.push_back(&one.weights);
    replay_meeting(meeting);
  }
  /// CHOCO-SGD: each worker takes what was sent of itself and of its neighbours, by number.
  void average_replicas() {
    std::vector<std::vector<float>> sent;
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      sent.push_back(workers_[w].weights);
      take_way(known_[w].replica.data(), sent[w].data(), count_);
      coded_->pass(static_cast<int>(w), sent[w]);
    }
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      const Mixing mixing =
          mixing_of(spec_.topology, worker_.workers(), static_cast<int>(w), 0, worker_.seed());
      std::vector<double> shares(workers_.size(), 0);
      shares[w] = mixing.self;
      for (const auto& from : mixing.from)
        shares[static_cast<std::size_t>(from.worker)] = from.weight;
      for (std::size_t of = 0; of < workers_.size(); ++of)
        if (of == w || shares[of] > 0)
          choco_take(known_[w], sent[of], static_cast<float>(shares[of]), of == w);
      choco_go(known_[w], workers_[w].weights.data());
    }
  }
  void average_neighbours(std::uint64_t round) {
    if (coded_) return average_replicas();
    const bool compensated = spec_.synchronisation == Synchronisation::d2;
    std::vector<std::vector<float>> before;
    for (auto& worker : workers_) {
      if (compensated) worker.moved.resize(count_, 0.0F);
      before.push_back(worker.weights);
      for (std::size_t i = 0; i < worker.moved.size(); ++i) before.back()[i] += worker.moved[i];
    }
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      const int number = static_cast<int>(w);
      const Mixing mixing =
          mixing_of(spec_.topology, worker_.workers(), number, round, worker_.seed());
      std::vector<const float*> of;
      for (const auto& from : mixing.from)
        of.push_back(before[static_cast<std::size_t>(from.worker)].data());
      ReplayedWorker& one = workers_[w];
      mix(mixing, number, before[w].data(), of, one.weights.data(), count_);
      for (std::size_t i = 0; i < one.moved.size(); ++i) {
        one.weights[i] = 0.5F * before[w][i] + 0.5F * one.weights[i];
        one.moved[i] = (one.moved[i] - before[w][i]) + one.weights[i];
      }
    }
  }

  TrainingSpec spec_;
  TrainingWorker& worker_;
  std::size_t count_;
  std::vector<ReplayedWorker> workers_;
  std::vector<float> met_;  ///< SlowMo: the weights after the last average; EASGD: the centre
  std::vector<float> moved_;
  std::optional<ReplayedSum> coded_;         ///< CHOCO-SGD's codecs
  std::vector<ChocoState> known_;            ///< to each worker
  std::vector<std::vector<double>> losses_;  ///< by which the next round was adapted
  RoundLengths before_{TrainingSpec{}};      ///< as they were then
};

}  // namespace

ReplayedRounds replay_rounds(const ExchangePlan& plan, const TrainingSpec& spec,
                             TrainingWorker& worker, int rounds, const RoundLog& log,
                             const StatesAfter& after, std::string& broken) {
  Replay replay(plan, spec, worker);
  ReplayedRounds replayed;
  const auto legs = static_cast<std::size_t>(spec.switch_to ? 2 : 1);
  const auto in_leg = static_cast<std::size_t>(rounds);
  for (std::size_t leg = 0; leg < legs; ++leg) {
    if (leg > 0) replay.switch_over();
    for (std::size_t i = leg * in_leg; i < (leg + 1) * in_leg; ++i) {
      replay.round(i < log.size() ? log[i] : 0, broken);
      const auto& own = replay.weights_of(static_cast<std::size_t>(worker.number()));
      replayed.own.insert(replayed.own.end(), own.begin(), own.end());
      if (i + 1 < legs * in_leg) replay.go_on_from(after(i));
    }
  }
  replayed.centre = replay.centre();
  return replayed;
}

}  // namespace dynamiccl
