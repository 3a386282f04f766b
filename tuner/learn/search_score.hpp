#pragma once

#include <functional>
#include <memory>

#include "tuner/agents/agent.hpp"
#include "tuner/simulator/world.hpp"

namespace dynamiccl {

using AgentMaker = std::function<std::unique_ptr<Agent>(std::uint64_t seed)>;

/// How long an agent searches in simulated regimes, as `tune replay` counts it on measured ones:
/// over tasks of at least 24 arms whose best arm is at least 1.1 times faster than the default.
struct SearchScore {
  int tasks = 0;
  /// Median over tasks of the measurements after which the recommendation saves 95 % of what the
  /// best arm saves; a task where it never does counts with all its arms.
  double evaluations_to_95 = 0;
  double reached_95 = 0;   ///< share of the tasks that get there
  double evaluations = 0;  ///< mean measurements until the agent is finished
  double gain_share = 0;   ///< time saved at the end over the best arms'
};

/// Draws `families` regimes and lets a fresh agent search three sizes of each, until it is finished
/// or has measured as often as the task has arms. The same seed gives every agent the same regimes.
SearchScore search_in_simulator(const AgentMaker& make, const SimCatalog& catalog,
                                CurriculumStage stage, int families, std::uint64_t seed);

}  // namespace dynamiccl
