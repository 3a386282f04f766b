#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/spec/training.hpp"
#include "train/synchronise/replay.hpp"

namespace dynamiccl {

/// How many steps the rounds of a cell have, and whether all workers do them together as in plain
/// SGD: the same on every rank, and in a replay of them.
class RoundLengths {
 public:
  explicit RoundLengths(const TrainingSpec& spec);
  /// Of the next round.
  [[nodiscard]] int steps() const { return steps_; }
  [[nodiscard]] bool plain() const;
  [[nodiscard]] std::uint64_t rounds() const { return rounds_; }
  /// The settings of the leg that rounds are in.
  [[nodiscard]] const TrainingSpec& leg() const { return leg_; }
  void switch_over();
  /// Rounds of plain SGD that post-local begins with.
  [[nodiscard]] std::uint64_t plain_rounds() const;

  /// A step of this worker's round; of the first one AdaComm's first loss is.
  void add_loss(double loss);
  /// After a round of so many steps that were done: as many as steps(), unless something went
  /// wrong. @returns whether all workers' losses are wanted before the next one
  bool end_round(int done);
  /// This worker's part of them.
  [[nodiscard]] std::vector<double> own_losses() const;
  /// @param losses every worker's own_losses(), in the order of workers
  void adapt(const std::vector<std::vector<double>>& losses);
  /// Steps that were done in each round so far, where they change.
  [[nodiscard]] const RoundLog& log() const { return log_; }
  /// This worker's loss in each of these steps.
  [[nodiscard]] const std::vector<double>& step_losses() const { return step_losses_; }
  /// Whether a round that began after `losses` could have had so many steps, where the losses are
  /// known to five digits: roundings of sums in another order may turn a step up.
  [[nodiscard]] bool could_adapt_to(int steps,
                                    const std::vector<std::vector<double>>& losses) const;
  /// What the next round has, whatever the rule says: a replay follows what was logged.
  void follow(int steps) { steps_ = steps; }

 private:
  [[nodiscard]] int adapted(double first, double loss) const;

  TrainingSpec whole_;
  TrainingSpec leg_;
  int steps_;
  std::uint64_t rounds_ = 0;
  int since_ = 0;  ///< steps since the losses were looked at
  double loss_ = 0;
  double first_loss_ = 0;
  bool has_first_ = false;
  RoundLog log_;
  std::vector<double> step_losses_;
};

/// AdaComm's rule over a whole log, from nothing but the losses: in what a round is other than the
/// rule gives by them, where they are known to five digits; "" where all are as they should be.
/// @param losses of each step of the log, mean over workers
std::string misfit_of_rounds(const TrainingSpec& spec, const RoundLog& log,
                             const std::vector<double>& losses);

}  // namespace dynamiccl
