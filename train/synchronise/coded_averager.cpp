// What is summed is how far weights went since the last meeting, encoded.
#include "train/synchronise/averager.hpp"
#include "train/synchronise/averaging.hpp"

namespace dynamiccl {
namespace {

class CodedAverager final : public AveragerFromLast {
 public:
  using AveragerFromLast::AveragerFromLast;
  void offer(std::uint64_t /*round*/) override {
    take_way_in(memory(), met(), worker_.gradients(), count_);
  }
  void take() override {
    go_way_in(memory(), worker_.sums(), scale(), met(), count_);
    worker_.take_weights(met(), 1);
  }
};

}  // namespace

std::unique_ptr<Averager> make_coded_averager(const ExchangePlan& plan, const TrainingSpec& spec,
                                              TrainingWorker& worker) {
  return std::make_unique<CodedAverager>(plan, spec, worker);
}

}  // namespace dynamiccl
