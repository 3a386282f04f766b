#pragma once

#include <Eigen/Core>
#include <span>
#include <vector>

#include "tuner/agents/belief_memory.hpp"

namespace dynamiccl {

/// Numbers that describe one value of one head: what is believed of the arms behind it.
inline constexpr int kCandidateFeatures = 14;
/// Numbers that the recurrent part sees besides the state vector.
inline constexpr int kFeedbackFeatures = 8;

/// What came of the previous step, relative to what was expected.
struct Feedback {
  bool first = true;    ///< nothing was tried in this task yet
  double relative = 0;  ///< ln(time / default's expected time) of the last arm
  double surprise = 0;  ///< (measured - expected) / standard deviation
  double gain = 0;      ///< by how much the best mean fell
  bool fault = false;
  bool was_default = false;
  double progress = 0;      ///< evaluations of this task / arms, at most 1
  double interference = 0;  ///< 0 to 1
};

/// Shape [state_width() + kFeedbackFeatures].
Eigen::VectorXf policy_input(const State& state, const Feedback& feedback);

/// Candidates of one head: every value of knob `prefix.size()` that the mask allows.
struct HeadCandidates {
  std::vector<std::uint8_t> values;  ///< the allowed values
  Eigen::MatrixXf features;          ///< [kCandidateFeatures, values]
};

/// What is known of a task's arms when a head is evaluated; all arrays have one entry per arm.
struct ArmKnowledge {
  const ArmOutlook& outlook;
  const std::vector<bool>& failed;
  const std::vector<int>& tries;  ///< how often each arm was measured in this task
  const std::vector<double>& prior;
};

/// Summaries over the arms that begin with `prefix` and a value: lowest mean, lowest optimistic
/// mean, largest expected gain, how often tried, ... (closed-form quantities are given).
/// Values whose arms all failed are left out.
HeadCandidates head_candidates(const ActionSpace& space, std::span<const std::uint8_t> prefix,
                               const ArmKnowledge& known);

}  // namespace dynamiccl
