#pragma once

#include <cstdint>
#include <functional>

#include "core/wire/record.hpp"
#include "train/spec/training.hpp"
#include "workers/messages.hpp"

namespace dynamiccl {

/// How a rank trains; every rank's answers are alike.
struct EpochTrainer {
  /// Trains so many rounds. @returns their mean microseconds
  std::function<double(int rounds)> train;
  /// Steps of each worker in the next round.
  std::function<int()> next_steps = [] { return 1; };
  /// Workers wait as TrainingSpec::switch_to says from now on.
  std::function<void()> switch_over = [] {};
  /// What is looked at besides the accuracy, with the rounds so far.
  std::function<void(int rounds)> look = [](int /*rounds*/) {};
  /// The rank's own, 0 to 1; 1 on servers.
  std::function<double()> accuracy;
};

/// Passes over the data, TrainingSpec::epochs of them at most, until every worker has the accuracy
/// that is wanted. A look is taken after the last whole round of each part of an epoch, and of
/// parts without a round none: steps that fill no round are made good in the next part. At least
/// one round. Ranks: all.
/// @param steps_per_epoch of each worker, the same on every rank
/// @param figures get accuracies (rounds, the lowest accuracy), epochs, time and what was switched
/// @returns the rounds
int run_epochs(Messages& comm, const TrainingSpec& spec, std::uint64_t steps_per_epoch,
               const EpochTrainer& trainer, TrainingFigures& figures);

}  // namespace dynamiccl
