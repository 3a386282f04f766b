#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tuner/agents/policy_agent.hpp"
#include "tuner/simulator/vector_simulator.hpp"

namespace dynamiccl {

/// One decision of the policy as training needs it again.
struct RolloutStep {
  Eigen::VectorXf input;
  std::vector<HeadStep> heads;
  float log_probability = 0;  ///< of the walk, under the policy that made it
  float value = 0;            ///< as that policy estimated it
  float reward = 0;           ///< summed until the next decision
};

/// The decisions of one episode, in order; the recurrent state begins at zero.
using Episode = std::vector<RolloutStep>;

struct Rollout {
  std::vector<Episode> episodes;
  double mean_reward = 0;  ///< per simulator step
};

/// A simulated task as agents see it.
Task task_of(const SimTask& sim);

/// Lets a policy act in simulated jobs exactly as PolicyAgent does: on a belief of its own per
/// episode, choosing among the arms that have something left to show, exploiting when none has.
/// @param episodes per job of the simulator, which must stand at the start of an episode
Rollout collect(const PolicyNetwork& network, VectorSimulator& simulator, int episodes,
                std::uint64_t seed);

/// How an agent does in simulated jobs, a fresh agent per episode.
struct SimScore {
  double mean_reward = 0;   ///< per step, all terms
  double final_regret = 0;  ///< mean of ln(time of the recommendation / best) at a task's end
  double evaluations = 0;   ///< exploratory steps per task
};
SimScore score_in_simulator(const std::function<std::unique_ptr<Agent>(std::uint64_t)>& make,
                            VectorSimulator& simulator, int episodes, std::uint64_t seed);

}  // namespace dynamiccl
