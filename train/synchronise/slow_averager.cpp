// SlowMo: averages have a momentum of their own.
#include "train/synchronise/averager.hpp"
#include "train/synchronise/averaging.hpp"

namespace dynamiccl {
namespace {

class SlowAverager final : public AveragerFromLast {
 public:
  using AveragerFromLast::AveragerFromLast;
  void prepare() override {
    if (!has_met()) {
      moved_.resize(memory(), count_);
      memory().clear(moved_.data(), count_);
    }
    AveragerFromLast::prepare();
  }
  void take() override {
    const bool forgets = misbehaves(worker_, "forget-slow-momentum");
    slow_step_in(memory(), forgets ? 0 : static_cast<float>(spec_.slow_momentum), worker_.sums(),
                 scale(), moved_.data(), met(), count_);
    worker_.take_weights(met(), 1);
  }
  [[nodiscard]] std::size_t held_floats() const override {
    return AveragerFromLast::held_floats() + moved_.size();
  }

 private:
  FlatBuffer moved_;
};

}  // namespace

void replay_slow(ReplayedMeeting& meeting) {
  slow_step(static_cast<float>(meeting.spec.slow_momentum), meeting.sum.data(), meeting.scale,
            meeting.moved.data(), meeting.met.data(), meeting.met.size());
  for (auto* weights : meeting.weights) *weights = meeting.met;
}

std::unique_ptr<Averager> make_slow_averager(const ExchangePlan& plan, const TrainingSpec& spec,
                                             TrainingWorker& worker) {
  return std::make_unique<SlowAverager>(plan, spec, worker);
}

}  // namespace dynamiccl
