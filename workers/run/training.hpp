#pragma once

#include <cstdint>
#include <memory>

#include "core/wire/record.hpp"
#include "core/wire/run_config.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// Runs the training cells of a launch; one per launch, as cells share a model and its profile.
class TrainingRunner {
 public:
  virtual ~TrainingRunner() = default;
  TrainingRunner(const TrainingRunner&) = delete;
  TrainingRunner& operator=(const TrainingRunner&) = delete;
  /// Ranks: all, with the same cells in the same order.
  /// @throws Error(environment) when a rank was lost
  virtual CellRecord run(const WorkCell& cell, int position) = 0;
  /// Payload that the last cell's steps moved from this rank, bytes.
  [[nodiscard]] virtual std::uint64_t last_payload_bytes() const = 0;

 protected:
  TrainingRunner() = default;
};

using MakeTraining = std::unique_ptr<TrainingRunner> (*)(Communicator& comm,
                                                         const RunConfig& config, double epoch_us);

/// nullptr in executables without libtorch: defined once per executable, in no_training.cpp or
/// train/run/training_maker.cpp.
MakeTraining training_maker();

}  // namespace dynamiccl
