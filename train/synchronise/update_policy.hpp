#pragma once

#include <cstdint>
#include <string>

#include "train/spec/training.hpp"

namespace dynamiccl {

/// A worker that has given a gradient and waits for a server's answer.
struct WaitingWorker {
  std::uint32_t ahead = 0;  ///< its steps of this phase beyond the slowest worker's
  bool updated = false;     ///< the weights have changed since it was given them
};

/// How a server that answers each worker by itself lets them go on: one row of update_policy.cpp
/// for each synchronisation that it knows. Groups of workers are one worker each to it.
struct UpdatePolicy {
  Synchronisation synchronisation;
  /// How many gradients of one version are added up before they are applied, while others are
  /// dropped; nullptr: each is applied as it comes.
  int (*wanted)(const TrainingSpec& spec, int workers) = nullptr;
  bool drops = true;      ///< where gradients are added up, one may be late
  bool in_turns = false;  ///< gradients are taken in the order of workers
  bool bounded = false;   ///< nobody is more than `staleness` steps ahead of the slowest

  [[nodiscard]] bool adds_up() const { return wanted != nullptr; }
  /// Gradients of an update.
  [[nodiscard]] int of_update(const TrainingSpec& spec, int workers) const {
    return adds_up() ? wanted(spec, workers) : 1;
  }
  [[nodiscard]] bool may_go_on(const TrainingSpec& spec, const WaitingWorker& waiting) const;
};

const UpdatePolicy& update_policy(Synchronisation synchronisation);

}  // namespace dynamiccl
