#pragma once

#include <vector>

#include "tuner/agents/belief_memory.hpp"

namespace dynamiccl {

/// What one more measurement somewhere is worth to all tasks of a search together: by how much the
/// time that the recommendations save, summed over the tasks, is expected to rise (knowledge
/// gradient; Frazier, Powell & Dayanik 2009, for correlated beliefs). A setting's saving counts
/// with what it may lose by being uncertain, so that confirming a promising setting, and measuring
/// a default that many settings are compared with, have their worth.
class JointValue {
 public:
  /// @param entries of the memory, one per task; it must not learn while this is used
  JointValue(const BeliefMemory& memory, const std::vector<const BeliefMemory::Entry*>& entries);

  /// By candidate: share of the default's time, summed over the tasks; 0 and above.
  [[nodiscard]] std::vector<double> of(const std::vector<PlannedChoice>& candidates) const;

 private:
  struct Known {
    const BeliefMemory::Entry* entry;
    Eigen::VectorXd faster;    ///< ln(default's time / arm's), expected
    Eigen::VectorXd variance;  ///< of it
    double saved = 0;          ///< by the best setting, with caution
    double hoped = 0;          ///< the same without
  };
  [[nodiscard]] double saved(const Known& task, const Eigen::VectorXd& shift, double z,
                             double caution) const;

  /// What the task's savings are expected to rise by, when a measurement shifts what is known so.
  [[nodiscard]] double gained(const Known& task, const Eigen::VectorXd& shift) const;

  const BeliefMemory& memory_;
  std::vector<Known> tasks_;
};

/// The `most` candidates of the largest value, best first, at most one per task; without those that
/// are worth nothing.
std::vector<PlannedChoice> most_valuable(const BeliefMemory& memory,
                                         const std::vector<const BeliefMemory::Entry*>& entries,
                                         const std::vector<PlannedChoice>& candidates,
                                         std::size_t most);

}  // namespace dynamiccl
