#pragma once

#include <memory>
#include <string>

#include "core/wire/record.hpp"
#include "core/wire/run_config.hpp"
#include "train/exchange/call_settings.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// Lets an agent, or a table, set the library's all-reduces of a training cell step by step. The
/// first rank thinks, all ranks take what it says at the same step. Its choices go into the
/// launch's folder (kDecisionsFile).
class StepTuner {
 public:
  virtual ~StepTuner() = default;
  StepTuner(const StepTuner&) = delete;
  StepTuner& operator=(const StepTuner&) = delete;

  [[nodiscard]] virtual CallSettings& settings() = 0;
  /// Every setting in turn, and nothing is learnt: for what compares sums with the oracle's.
  virtual void check_all(bool on) = 0;
  /// After a step, by the computing thread.
  virtual void step_done(double step_us, double loss) = 0;
  /// What was chosen, for the record's details; on the first rank alone.
  virtual void describe(TrainingFigures& figures) const = 0;

 protected:
  StepTuner() = default;
};

/// Why this program has no agents; "" where it has. Builds of workers alone have none.
std::string why_no_step_tuner();

/// Ranks: all, with the same plan; the communicator is theirs. What is given outlives it.
/// @throws Error(input) when the table cannot be read
std::unique_ptr<StepTuner> make_step_tuner(Communicator& comm, const RunConfig& config,
                                           const TrainingSpec& spec, const ExchangePlan& plan);

}  // namespace dynamiccl
