// EASGD: workers are drawn to a centre, and that goes to their mean.
#include "train/plan/sgd.hpp"
#include "train/synchronise/averager.hpp"
#include "train/synchronise/averaging.hpp"

namespace dynamiccl {
namespace {

class ElasticAverager final : public AveragerFromLast {
 public:
  using AveragerFromLast::AveragerFromLast;
  void take() override {
    // To where the centre was.
    if (!misbehaves(worker_, "stay-away")) worker_.draw_to(met(), pull_of(worker_.workers()));
    move_centre_in(memory(), worker_.sums(), scale(), met(), count_);
  }
  [[nodiscard]] const float* centre() override { return has_met() ? met() : nullptr; }
};

}  // namespace

void replay_elastic(ReplayedMeeting& meeting) {
  const float pull = pull_of(static_cast<int>(meeting.weights.size()));
  for (auto* weights : meeting.weights)
    draw(weights->data(), meeting.met.data(), pull, meeting.met.size());
  move_centre(meeting.sum.data(), meeting.scale, meeting.met.data(), meeting.met.size());
}

std::unique_ptr<Averager> make_elastic_averager(const ExchangePlan& plan, const TrainingSpec& spec,
                                                TrainingWorker& worker) {
  return std::make_unique<ElasticAverager>(plan, spec, worker);
}

}  // namespace dynamiccl
