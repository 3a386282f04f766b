#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "train/exchange/outliving.hpp"
#include "train/exchange/step_server.hpp"
#include "train/synchronise/replay.hpp"
#include "train/synchronise/step_driver.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// Whether a gradient is new enough to be sent (LAG, Chen et al. 2018, its workers' rule): the
/// square of its change since the one that was sent last, against `threshold` times the mean square
/// of the last kLagWindow movements of the weights, each over the learning rate and over what
/// momentum makes of it in the long run, 1 / (1 - momentum): the rule is of steps without, and one
/// gradient that momentum drives on would be new to nobody, however wrong it is. One worker's.
class LazyRule {
 public:
  explicit LazyRule(const TrainingSpec& spec);
  /// @param sent the gradient that was sent last; empty before the first
  [[nodiscard]] bool sends(const float* gradient, const std::vector<float>& sent) const;
  /// @param velocity of SGD after a step: what the weights moved by, over the learning rate
  void moved(const float* velocity, std::size_t count);

 private:
  double threshold_;
  std::deque<double> movements_;  ///< their squares
};

/// The server of LAG, rank 0: it sums, in rank order, the gradient that each worker sent last, and
/// answers every worker with the sum. A slot per worker and the sum. Host memory.
/// @param silence after which a worker is taken for lost
Outliving<StepServer> make_lazy_server(Messages& comm, const ExchangePlan& plan, Micros silence);

/// A worker's side: what it does not send is a flag.
std::unique_ptr<StepDriver> make_lazy_driver(Messages& comm, const ExchangePlan& plan,
                                             const TrainingSpec& spec, TrainingWorker& worker,
                                             Micros silence);

/// What one process gets that does every worker's steps in turn, and who sent in which step.
ReplayedRounds replay_lazily(const TrainingSpec& spec, TrainingWorker& worker, int steps,
                             const StatesAfter& after);

}  // namespace dynamiccl
