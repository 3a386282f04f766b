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
  }
  StepTimes finish() override { return {}; }
  std::optional<double> take_busy_us() override { return std::exchange(busy_us_, 0); }
  void trace_next() override { spans_.clear(); }
  std::vector<Span> take_spans() override { return std::exchange(spans_, {}); }
  [[nodiscard]] std::uint64_t sent_bytes() const override {
    return choco_ ? choco_->sent_bytes() : plain_->sent_bytes();
  }
  [[nodiscard]] std::size_t extra_bytes() const override {
    return choco_ ? choco_->held_bytes() : plain_->held_bytes();
  }
  std::optional<CodingFigures> take_coding() override {
    return choco_ ? std::optional(choco_->take_coding()) : std::nullopt;
  }
  void restarted() override {
    RoundDriver::restarted();
    if (choco_) choco_->restart();
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
    const float* mixed = choco_ ? own : plain_->average(lengths_.rounds(), own);
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

  Communicator& comm_;
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
