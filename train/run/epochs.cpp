#include "train/run/epochs.hpp"

#include <algorithm>

#include "workers/standing.hpp"

namespace dynamiccl {
namespace {

class EpochRun {
 public:
  EpochRun(Messages& comm, const TrainingSpec& spec, const EpochTrainer& trainer,
           TrainingFigures& figures)
      : comm_(comm), spec_(spec), trainer_(trainer), figures_(figures) {}

  /// Whole rounds up to this step of each worker. @returns whether there were any
  bool train_until(std::uint64_t step, bool at_least_one) {
    const int before = rounds_;
    while (true) {
      const auto steps = static_cast<std::uint64_t>(trainer_.next_steps());
      std::uint64_t fitting = (step - std::min(step, steps_)) / steps;
      if (fitting == 0 && at_least_one && rounds_ == 0) fitting = 1;
      if (fitting == 0) return rounds_ > before;
      // The next round's length is only known after this one.
      if (spec_.synchronisation == Synchronisation::adacomm) fitting = 1;
      const int rounds = static_cast<int>(fitting);
      trained_us_ += trainer_.train(rounds) * rounds;
      rounds_ += rounds;
      steps_ += steps * fitting;
    }
  }
  void switch_over(int epoch) {
    trainer_.switch_over();
    figures_.details["switched"] = {{"from", name_of(spec_.synchronisation)},
                                    {"to", name_of(*spec_.switch_to)},
                                    {"epoch", epoch},
                                    {"rounds", rounds_},
                                    {"worker_steps", steps_},
                                    {"trained_us", trained_us_}};
  }
  /// @returns whether the target is reached
  bool look() {
    stand_at(Standpoint::evaluation);
    trainer_.look(rounds_);
    // BatchNorm's statistics are each worker's own, and so are accuracies: the lowest counts.
    const double lowest = -max_over_ranks(comm_, {-trainer_.accuracy()})[0];
    accuracies_.push_back({rounds_, lowest});
    figures_.accuracy = lowest;
    return spec_.target > 0 && lowest >= spec_.target;
  }
  int conclude(int epochs, bool reached) {
    figures_.details["accuracies"] = std::move(accuracies_);
    figures_.details["epochs"] = epochs;
    figures_.details["trained_us"] = trained_us_;  // without the evaluations
    figures_.details["worker_steps"] = steps_;
    if (spec_.target > 0) figures_.details["target_reached"] = reached;
    return rounds_;
  }

 private:
  Messages& comm_;
  const TrainingSpec& spec_;
  const EpochTrainer& trainer_;
  TrainingFigures& figures_;
  nlohmann::json accuracies_ = nlohmann::json::array();
  double trained_us_ = 0;
  int rounds_ = 0;
  std::uint64_t steps_ = 0;  ///< of each worker
};

}  // namespace

int run_epochs(Messages& comm, const TrainingSpec& spec, std::uint64_t steps_per_epoch,
               const EpochTrainer& trainer, TrainingFigures& figures) {
  EpochRun run(comm, spec, trainer, figures);
  const auto looks = static_cast<std::uint64_t>(spec.looks);
  const std::uint64_t parts = static_cast<std::uint64_t>(spec.epochs) * looks;
  const std::uint64_t until_switch = static_cast<std::uint64_t>(spec.switch_after) * looks;
  bool reached = false;
  std::uint64_t part = 0;
  while (part < parts && !reached) {
    if (spec.switch_to && part == until_switch) run.switch_over(spec.switch_after);
    ++part;
    const std::uint64_t step = part * steps_per_epoch / looks;
    if (run.train_until(step, part == parts)) reached = run.look();
  }
  // Those that were begun.
  return run.conclude(static_cast<int>((part + looks - 1) / looks), reached);
}

}  // namespace dynamiccl
