#pragma once

#include <Eigen/Core>
#include <map>
#include <string>
#include <vector>

namespace dynamiccl {

/// Sizes of the policy network; part of its file.
struct NetworkShape {
  int input = 0;      ///< state_width() + kFeedbackFeatures
  int candidate = 0;  ///< kCandidateFeatures
  int hidden = 64;    ///< of the recurrent part
  int scorer = 32;    ///< hidden units of a head
  bool operator==(const NetworkShape&) const = default;
};

/// Names and shapes [rows, columns] of all weights, in file order. A bias has one column.
///   x = tanh(in_w input + in_b); h' = GRU(x, h) with gates reset, update, new as in torch
///   score(candidate) = out . tanh(context h' + feature f + bias) + skip . f
///   value = value_w . tanh(value_in h' + value_b) + value_c
/// Implementation and resource heads have scorers of their own.
struct WeightShape {
  std::string name;
  int rows;
  int columns;
};
std::vector<WeightShape> weight_shapes(const NetworkShape& shape);

/// Weights by name.
using Weights = std::map<std::string, Eigen::MatrixXf>;

/// Forward pass of the recurrent policy (PPO, Schulman et al., arXiv 1707.06347; GRU, Cho et al.
/// 2014). Immutable; callers keep the recurrent state.
class PolicyNetwork {
 public:
  /// @throws Error(data) when a weight is missing, has another shape or is not finite
  PolicyNetwork(const NetworkShape& shape, Weights weights);

  [[nodiscard]] const NetworkShape& shape() const { return shape_; }
  [[nodiscard]] const Weights& weights() const { return weights_; }
  [[nodiscard]] Eigen::VectorXf initial_state() const {
    return Eigen::VectorXf::Zero(shape_.hidden);
  }
  /// The input without what has no weight: what a policy that sees less learns from.
  [[nodiscard]] Eigen::VectorXf seen(const Eigen::VectorXf& input) const;
  /// @param input [shape.input] @param hidden [shape.hidden] @returns the next hidden state
  [[nodiscard]] Eigen::VectorXf advance(const Eigen::VectorXf& input,
                                        const Eigen::VectorXf& hidden) const;
  /// Scores before the softmax. @param features [shape.candidate, candidates]
  [[nodiscard]] Eigen::VectorXf scores(const Eigen::VectorXf& hidden,
                                       const Eigen::MatrixXf& features, bool implementation) const;
  /// Expected discounted reward from here on.
  [[nodiscard]] float value(const Eigen::VectorXf& hidden) const;

 private:
  [[nodiscard]] const Eigen::MatrixXf& weight(const char* name) const { return weights_.at(name); }
  NetworkShape shape_;
  Weights weights_;
};

/// Numerically safe softmax of a head's scores.
Eigen::VectorXf softmax(const Eigen::VectorXf& scores);

}  // namespace dynamiccl
