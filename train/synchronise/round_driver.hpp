#pragma once

#include <memory>

#include "train/synchronise/round_lengths.hpp"
#include "train/synchronise/step_driver.hpp"

namespace dynamiccl {

/// Whether a step() of the cell's driver is a round: local steps, then an average of the weights of
/// all workers, or of neighbours.
bool goes_by_rounds(const TrainingSpec& spec);

/// Workers that meet after each round of `local_steps` steps of their own: the steps, whoever they
/// meet.
class RoundDriver : public StepDriver {
 public:
  StepTimes step() override;
  void restarted() override;
  [[nodiscard]] int next_steps() const override { return lengths_.steps(); }
  [[nodiscard]] int next_exchanges() const override {
    return lengths_.plain() ? lengths_.steps() : 1;
  }
  [[nodiscard]] RoundLog round_log() const override { return lengths_.log(); }

 protected:
  RoundDriver(const ExchangePlan& plan, const TrainingSpec& spec, TrainingWorker& worker)
      : plan_(plan), spec_(spec), worker_(worker), lengths_(spec) {}
  ~RoundDriver() override;

  /// A step of all workers together.
  virtual StepTimes plain_step() = 0;
  /// Before a round of the worker's own steps, and after it, as times of it.
  virtual void prepare(StepTimes& round) = 0;
  virtual void average(StepTimes& round) = 0;
  /// The losses of all workers are wanted before the next round.
  virtual void adapt(StepTimes& /*round*/) {}

  [[nodiscard]] TensorMemory& memory() { return worker_.memory(); }

  ExchangePlan plan_;
  TrainingSpec spec_;
  TrainingWorker& worker_;
  RoundLengths lengths_;
  bool forgot_ = false;  ///< that workers wait otherwise by now: a planted fault

 private:
  [[nodiscard]] bool takes_part() const;
  [[nodiscard]] int steps_to_do(bool plain) const;

  double loss_ = kNoLoss;  ///< of the last round that it took part in
};

/// With all workers, or with neighbours.
/// @param silence after which a neighbour is taken for lost
std::unique_ptr<StepDriver> make_round_driver(Communicator& comm, const ExchangePlan& plan,
                                              const TrainingSpec& spec, TrainingWorker& worker,
                                              Micros silence);
std::unique_ptr<StepDriver> make_gossip_driver(Communicator& comm, const ExchangePlan& plan,
                                               const TrainingSpec& spec, TrainingWorker& worker,
                                               Micros silence);

}  // namespace dynamiccl
