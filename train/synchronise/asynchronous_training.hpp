#pragma once

#include <memory>
#include <vector>

#include "core/wire/record.hpp"
#include "train/exchange/outliving.hpp"
#include "train/synchronise/update_server.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// A rank's part of a training whose servers answer each worker by themselves. Ranks: all call the
/// same.
class AsynchronousTraining {
 public:
  /// @param worker nullptr on a server
  /// @param silence after which a worker that owes the first server a gradient is taken for lost
  AsynchronousTraining(Communicator& comm, const ExchangePlan& plan, const TrainingSpec& spec,
                       TrainingWorker* worker, Micros silence);
  /// The workers are at the start.
  void start();
  /// Workers wait as TrainingSpec::switch_to says from now on. Between two phases.
  void switch_over();
  /// One phase. @returns a server's own rounds, to workers the first server's, in the rank's own
  /// clock's terms
  /// @param epoch_us the rank's clock where all ranks' clocks are 0
  std::vector<UpdateRound> run(int rounds, double epoch_us);
  /// What this worker's steps of the last phase took, the typical one; zeros on the server.
  [[nodiscard]] const StepTimes& typical_step() const { return typical_; }
  /// The calls of each of these steps, see UpdateWorker::calls(); none on the server.
  [[nodiscard]] const std::vector<StepCalls>& calls() const {
    static const std::vector<StepCalls> none;
    return steps_ ? steps_->calls() : none;
  }
  /// See UpdateWorker::calls_left_out().
  [[nodiscard]] std::size_t calls_left_out() const { return steps_ ? steps_->calls_left_out() : 0; }
  [[nodiscard]] std::uint64_t sent_bytes() const;
  /// Gradients and answers that this rank holds beyond weights, momentum and one gradient.
  [[nodiscard]] std::size_t held_bytes() const;
  /// What this worker's codec did since the last call; nullopt on the server and without one.
  std::optional<CodingFigures> take_coding();
  /// The same of what it sent within its group.
  std::optional<CodingFigures> take_group_coding();
  /// Staleness, for the server's record.
  void describe(TrainingFigures& figures) const;
  [[nodiscard]] const UpdateServer* server() const { return server_.get(); }

 private:
  Communicator& comm_;
  TrainingSpec spec_;
  int servers_;
  TrainingWorker* worker_;
  Outliving<UpdateServer> server_;
  Outliving<UpdateWorker> steps_;
  StepTimes typical_;
};

}  // namespace dynamiccl
