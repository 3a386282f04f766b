#pragma once

#include <Eigen/Core>
#include <vector>

#include "tuner/agents/policy_features.hpp"
#include "tuner/agents/policy_network.hpp"

namespace dynamiccl {

/// One head of a walk through the action, as training needs it again.
struct HeadStep {
  HeadCandidates candidates;
  std::size_t picked = 0;  ///< index into candidates.values
  bool implementation = false;
};

/// A decision that was carried out, with what came of it.
struct OnlineDecision {
  Eigen::VectorXf hidden;  ///< recurrent state that it was made in
  std::vector<HeadStep> heads;
  double log_probability = 0;  ///< under the weights that made it
  double reward = 0;
};

struct OnlineUpdateOptions {
  double learning_rate = 0.01;
  double clip = 0.2;
  int epochs = 4;
  std::size_t batch = 16;  ///< decisions per update
};

/// PPO on an agent's own decisions: clipped policy gradient (Schulman et al., arXiv 1707.06347) of
/// the heads' weights, the advantage being the reward against the batch's mean in standard
/// deviations. The recurrent part and the value stay as trained: a few dozen decisions do not teach
/// them anything. No libtorch; microseconds per update.
class OnlineUpdate {
 public:
  explicit OnlineUpdate(const OnlineUpdateOptions& options = {}) : options_(options) {}

  /// Takes a decision; when a batch is full, the network is replaced by the updated one.
  /// @returns true when the network changed
  bool add(OnlineDecision decision, PolicyNetwork& network);

 private:
  OnlineUpdateOptions options_;
  std::vector<OnlineDecision> batch_;
};

}  // namespace dynamiccl
