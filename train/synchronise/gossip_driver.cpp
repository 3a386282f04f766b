// Rounds that end where a worker meets its neighbours.
#include <limits>
#include <utility>

#include "train/exchange/outliving.hpp"
#include "train/synchronise/averager.hpp"
#include "train/synchronise/averaging.hpp"
#include "train/synchronise/choco.hpp"
#include "train/synchronise/round_driver.hpp"
#include "workers/clock.hpp"

namespace dynamiccl {
namespace {

class GossipDriver final : public RoundDriver {
 public:
  GossipDriver(Communicator& comm, const ExchangePlan& plan, const TrainingSpec& spec,
               TrainingWorker& worker, Micros silence)
      : RoundDriver(plan, spec, worker), comm_(comm) {
    worker_.hold(true, worker_.needs_answers(plan_.servers));
    if (plan_.codec.codec != Codec::none) {
      choco_ = make_outliving<ChocoAverage>(comm, plan_, spec_, silence);
    } else {
      plain_ = make_outliving<NeighbourAverage>(comm, worker_.memory(), spec_.topology,
                                                plan_.elements(), worker_.seed(), silence);
    }
    if (spec_.synchronisation == Synchronisation::d2) {
      moved_.resize(memory(), plan_.elements());
      memory().clear(moved_.data(), moved_.size());
    }
  }
  StepTimes finish() override { return {}; }
  std::optional<double> take_busy_us() override { return std::exchange(busy_us_, 0); }
  void trace_next() override { spans_.clear(); }
  std::vector<Span> take_spans() override { return std::exchange(spans_, {}); }
  [[nodiscard]] std::uint64_t sent_bytes() const override {
    return choco_ ? choco_->sent_bytes() : plain_->sent_bytes();
  }
  [[nodiscard]] std::size_t extra_bytes() const override {
    return choco_ ? choco_->held_bytes() : plain_->held_bytes() + moved_.size() * sizeof(float);
  }
  std::optional<CodingFigures> take_coding() override {
    return choco_ ? std::optional(choco_->take_coding()) : std::nullopt;
  }
  void restarted() override {
    RoundDriver::restarted();
    if (choco_) choco_->restart();
    if (moved_.size() > 0) memory().clear(moved_.data(), moved_.size());
  }
  void look(TrainingFigures& figures, int rounds) override {
    auto& gossip = figures.details["gossip"];
    gossip["topology"] = name_of(spec_.topology);
    gossip["spectral_gap"] = spectral_gap(spec_.topology, comm_.size());
    gossip["consensus"].push_back({rounds, consensus_distance(comm_, worker_.weights())});
    if (spec_.epochs > 0) gossip["mean_accuracies"].push_back({rounds, accuracy_of_mean()});
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
  StepTimes plain_step() override { return worker_.step_by_itself(true); }
  void prepare(StepTimes& /*round*/) override {
    if (choco_ && !choco_->has_begun()) choco_->begin(worker_.host_weights());
  }
  void average(StepTimes& round) override {
    const double before_us = now_us();
    const float* own = worker_.weights_in_order();
    const double start_us = now_us();
    round.update_us += start_us - before_us;
    if (choco_) average_replicas();
    const float* mixed = choco_              ? own
                         : moved_.size() > 0 ? average_with_way()
                                             : plain_->average(lengths_.rounds(), own);
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

  /// D2 (Tang et al., 2018): neighbours average weights to which each has added what the last
  /// average changed of its own. Half of the way, as on a ring of even length the whole one swings
  /// for ever (the least eigenvalue is to be above -1/3). The weights lie where gradients do.
  const float* average_with_way() {
    float* own = worker_.gradients();
    const std::size_t count = moved_.size();
    if (!misbehaves(worker_, "drop-way")) memory().blend(own, 1, moved_.data(), 1, count);
    const float* mixed = plain_->average(lengths_.rounds(), own);
    memory().blend(moved_.data(), 1, own, -1, count);
    memory().blend(own, 0.5F, mixed, 0.5F, count);
    memory().blend(moved_.data(), 1, own, 1, count);
    return own;
  }

  Communicator& comm_;
  FlatBuffer moved_;  ///< D2: what the last average changed of this worker's weights
  Outliving<NeighbourAverage> plain_;
  Outliving<ChocoAverage> choco_;  ///< where messages are encoded
  double busy_us_ = 0;
  std::vector<Span> spans_;
};

}  // namespace

std::unique_ptr<StepDriver> make_gossip_driver(Communicator& comm, const ExchangePlan& plan,
                                               const TrainingSpec& spec, TrainingWorker& worker,
                                               Micros silence) {
  return std::make_unique<GossipDriver>(comm, plan, spec, worker, silence);
}

}  // namespace dynamiccl
