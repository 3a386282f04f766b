#pragma once

#include <map>

#include "tuner/agents/policy_features.hpp"
#include "tuner/agents/policy_file.hpp"

namespace dynamiccl {

/// One head of a walk through the action, as training needs it again.
struct HeadStep {
  HeadCandidates candidates;
  std::size_t picked = 0;  ///< index into candidates.values
  bool implementation = false;
};

/// A walk through the masked factored heads, as training needs it again.
struct PolicyWalk {
  std::size_t arm = 0;
  double probability = 1;
  std::vector<HeadStep> heads;  ///< heads with one candidate alone are left out: nothing to choose
};

/// Walks the heads: implementation first, then resources inside it.
/// @param random nullptr takes the likeliest value of every head
PolicyWalk walk_heads(const PolicyNetwork& network, const Eigen::VectorXf& hidden,
                      const ActionSpace& space, const ArmKnowledge& known, FastRandom* random);

/// One decision of a policy as training needs it again.
struct PolicyStep {
  Eigen::VectorXf input;
  std::vector<HeadStep> heads;
  float log_probability = 0;  ///< of the walk, under the policy that made it
  float value = 0;            ///< as that policy estimated it
  float reward = 0;           ///< what came of it until the next decision
};

inline constexpr const char* kPpo = "ppo";
inline constexpr const char* kUntrainedPpo = "ppo-untrained";

/// Recurrent PPO policy on top of the shared belief: the network chooses what to measure from what
/// is believed of every arm, its recurrent state carries what the belief does not (load, faults,
/// how far the models stray here). The belief and the recurrent state adapt online to each
/// measurement; the weights stay as trained. Never chooses an arm that has nothing left to show.
class PolicyAgent final : public Agent {
 public:
  /// @param name kPpo or kUntrainedPpo
  PolicyAgent(const Policy& policy, const AgentOptions& options, const BeliefOptions& belief,
              std::string_view name = kPpo);
  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] const std::string& version() const { return version_; }
  Choice act(const Task& task) override;
  [[nodiscard]] bool plans() const override { return true; }
  /// The policy names settings of every task; of them, and of the defaults, those are measured that
  /// bring most to all tasks together.
  std::vector<PlannedChoice> plan(const std::vector<const Task*>& tasks, std::size_t most) override;
  void learn(const Task& task, std::size_t arm, const Trial& trial) override;
  [[nodiscard]] bool finished(const Task& task) const override { return memory_.finished(task); }
  [[nodiscard]] std::size_t recommend(const Task& task) const override {
    return memory_.recommend(task);
  }
  void reopen(const RegimeKey& key) override;
  /// Keeps what plan() decides, in order: whoever asks for one choice at a time gets what training
  /// needs. `steps` outlives the agent; nullptr = no more.
  void record(std::vector<PolicyStep>* steps) { steps_ = steps; }

 private:
  /// A task's decision: its input, the recurrent state of its regime after it, and the walk.
  struct Proposal {
    Eigen::VectorXf input;
    Eigen::VectorXf hidden;
    PolicyWalk walk;
  };
  /// Input and recurrent state after what came of the task's last measurement; no walk yet.
  Proposal advanced(const Task& task);
  void keep(const RegimeKey& key, const Proposal& proposal);

  PolicyNetwork network_;
  std::string_view name_;
  std::string version_;
  BeliefMemory memory_;
  FastRandom random_;
  /// One recurrent state per regime: it is the regime that it describes.
  std::map<std::string, Eigen::VectorXf> hidden_;
  std::map<RegimeKey, Feedback> feedback_;
  std::vector<PolicyStep>* steps_ = nullptr;
};

/// What a measurement says relative to what was believed before it.
Feedback feedback_of(const ArmOutlook& before, const ArmOutlook& after, std::size_t arm,
                     const Trial& trial, double progress);

}  // namespace dynamiccl
