#include "train/synchronise/averager.hpp"

#include "train/synchronise/averaging.hpp"

namespace dynamiccl {

AveragerMaker make_elastic_averager, make_slow_averager, make_coded_averager;
MeetingReplay replay_elastic, replay_slow;

namespace {

std::unique_ptr<Averager> make_mean(const ExchangePlan& plan, const TrainingSpec& spec,
                                    TrainingWorker& worker) {
  return std::make_unique<Averager>(plan, spec, worker);
}

void replay_mean(ReplayedMeeting& meeting) {
  for (auto& value : meeting.sum) value *= meeting.scale;
  for (auto* weights : meeting.weights) *weights = meeting.sum;
}

/// The first whose cells these are. A new averager is a source, and a row here.
struct AveragerRow {
  bool (*fits)(const TrainingSpec& spec);
  AveragerMaker* make;
  MeetingReplay* replay;
};
constexpr AveragerRow kAveragers[] = {
    {[](const TrainingSpec& spec) { return has_centre(spec.synchronisation); },
     make_elastic_averager, replay_elastic},
    {[](const TrainingSpec& spec) { return spec.slow_momentum > 0; }, make_slow_averager,
     replay_slow},
    {[](const TrainingSpec& spec) { return spec.compression != Codec::none; }, make_coded_averager,
     replay_mean},
    {[](const TrainingSpec&) { return true; }, make_mean, replay_mean}};

const AveragerRow& averager_row(const TrainingSpec& spec) {
  const AveragerRow* row = kAveragers;
  while (!row->fits(spec)) ++row;
  return *row;
}

}  // namespace

bool misbehaves(const TrainingWorker& worker, std::string_view fault) {
  return planted_fault(fault) && worker.number() == worker.workers() - 1;
}

float Averager::scale() const {
  return weighs_workers(spec_) ? 1.0F : static_cast<float>(1.0 / worker_.workers());
}

void Averager::offer(std::uint64_t round) {
  if (!weighs_workers(spec_)) return;
  const int workers = worker_.workers();
  double part = part_of(spec_, workers, worker_.number(), round, worker_.seed());
  if (misbehaves(worker_, "equal-share")) part = 1.0 / workers;
  if (misbehaves(worker_, "uninvited")) part = share_of(spec_, workers, worker_.number());
  memory().blend(worker_.gradients(), static_cast<float>(part), nullptr, 0, count_);
}

void Averager::take() {
  if (!memory().on_gpu()) return worker_.take_weights(worker_.sums(), scale());
  // One kernel, not one for each parameter.
  memory().blend(worker_.sums(), scale(), nullptr, 0, count_);
  worker_.take_weights(worker_.sums(), 1);
}

void AveragerFromLast::prepare() {
  if (has_met_) return;
  met_.resize(memory(), count_);
  memory().copy(worker_.weights_in_order(), met_.data(), count_);
  memory().complete();
  has_met_ = true;
}

std::unique_ptr<Averager> make_averager(const ExchangePlan& plan, const TrainingSpec& spec,
                                        TrainingWorker& worker) {
  return averager_row(spec).make(plan, spec, worker);
}

void replay_meeting(ReplayedMeeting& meeting) { averager_row(meeting.spec).replay(meeting); }

}  // namespace dynamiccl
