#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "train/plan/exchange_plan.hpp"
#include "train/step/worker_step.hpp"

namespace dynamiccl {

/// What becomes of the weights where all workers meet: of the sum of what each offers. This one
/// takes the mean, weighted where workers have shares or take part by turns. Others are classes in
/// sources of their own, which averager.cpp names. In the memory where the weights lie; one thread.
class Averager {
 public:
  Averager(const ExchangePlan& plan, const TrainingSpec& spec, TrainingWorker& worker)
      : count_(plan.elements()), spec_(spec), worker_(worker) {}
  virtual ~Averager() = default;
  Averager(const Averager&) = delete;
  Averager& operator=(const Averager&) = delete;

  /// Before a round that ends with an average.
  virtual void prepare() {}
  /// The weights, which lie where gradients do, become what is summed.
  virtual void offer(std::uint64_t round);
  /// What the worker's sums say becomes its weights.
  virtual void take();
  /// As before the first round.
  virtual void restart() {}
  /// What is trained, where that is no worker's weights; nullptr where it is.
  [[nodiscard]] virtual const float* centre() { return nullptr; }
  [[nodiscard]] virtual std::size_t held_floats() const { return 0; }

 protected:
  /// Of the sum, so that it becomes a mean.
  [[nodiscard]] float scale() const;
  [[nodiscard]] TensorMemory& memory() { return worker_.memory(); }

  std::size_t count_;  ///< of weights
  TrainingSpec spec_;
  TrainingWorker& worker_;
};

/// Averages that go on from what all workers had in common when they met last.
class AveragerFromLast : public Averager {
 public:
  using Averager::Averager;
  void prepare() override;
  void restart() override { has_met_ = false; }
  [[nodiscard]] std::size_t held_floats() const override { return met_.size(); }

 protected:
  [[nodiscard]] bool has_met() const { return has_met_; }
  [[nodiscard]] float* met() { return met_.data(); }

 private:
  FlatBuffer met_;
  bool has_met_ = false;
};

using AveragerMaker = std::unique_ptr<Averager>(const ExchangePlan& plan, const TrainingSpec& spec,
                                                TrainingWorker& worker);
/// Of the cell's settings.
AveragerMaker make_averager;

/// A meeting of all workers in one process that does every worker's rounds in turn.
struct ReplayedMeeting {
  const TrainingSpec& spec;
  float scale;                               ///< of the sum, so that it becomes a mean
  std::vector<float>& sum;                   ///< of what workers offered; used up
  std::vector<float>& met;                   ///< what all had in common when they met last
  std::vector<float>& moved;                 ///< the momentum of averages
  std::vector<std::vector<float>*> weights;  ///< of each worker, which become the new ones
};
using MeetingReplay = void(ReplayedMeeting& meeting);
MeetingReplay replay_meeting;

/// Whether the fault is planted and this is the last worker.
bool misbehaves(const TrainingWorker& worker, std::string_view fault);

}  // namespace dynamiccl
