#include "tuner/agents/policy_network.hpp"

#include <fmt/format.h>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {
namespace {

Eigen::VectorXf sigmoid(const Eigen::VectorXf& x) { return (1 + (-x.array()).exp()).inverse(); }

}  // namespace

std::vector<WeightShape> weight_shapes(const NetworkShape& s) {
  std::vector<WeightShape> shapes{{"in_w", s.hidden, s.input},
                                  {"in_b", s.hidden, 1},
                                  {"gru_input_w", 3 * s.hidden, s.hidden},
                                  {"gru_hidden_w", 3 * s.hidden, s.hidden},
                                  {"gru_input_b", 3 * s.hidden, 1},
                                  {"gru_hidden_b", 3 * s.hidden, 1}};
  for (const char* head : {"implementation", "resource"}) {
    const std::string prefix = std::string(head) + "_";
    shapes.push_back({prefix + "context", s.scorer, s.hidden});
    shapes.push_back({prefix + "feature", s.scorer, s.candidate});
    shapes.push_back({prefix + "bias", s.scorer, 1});
    shapes.push_back({prefix + "out", 1, s.scorer});
    shapes.push_back({prefix + "skip", 1, s.candidate});
  }
  shapes.push_back({"value_in", s.scorer, s.hidden});
  shapes.push_back({"value_b", s.scorer, 1});
  shapes.push_back({"value_w", 1, s.scorer});
  shapes.push_back({"value_c", 1, 1});
  return shapes;
}

PolicyNetwork::PolicyNetwork(const NetworkShape& shape, Weights weights)
    : shape_(shape), weights_(std::move(weights)) {
  for (const WeightShape& expected : weight_shapes(shape)) {
    const auto found = weights_.find(expected.name);
    if (found == weights_.end())
      throw Error(ErrorKind::data, fmt::format("policy: weight \"{}\" is missing", expected.name));
    if (found->second.rows() != expected.rows || found->second.cols() != expected.columns)
      throw Error(
          ErrorKind::data,
          fmt::format("policy: weight \"{}\" is {} x {}, expected {} x {}", expected.name,
                      found->second.rows(), found->second.cols(), expected.rows, expected.columns));
    if (!found->second.allFinite())
      throw Error(ErrorKind::data,
                  fmt::format("policy: weight \"{}\" is not finite", expected.name));
  }
}

Eigen::VectorXf PolicyNetwork::seen(const Eigen::VectorXf& input) const {
  const Eigen::MatrixXf& weights = weight("in_w");
  Eigen::VectorXf left = input;
  for (Eigen::Index i = 0; i < left.size(); ++i)
    if (weights.col(i).isZero(0)) left[i] = 0;
  return left;
}

Eigen::VectorXf PolicyNetwork::advance(const Eigen::VectorXf& input,
                                       const Eigen::VectorXf& hidden) const {
  DYN_ASSERT(input.size() == shape_.input && hidden.size() == shape_.hidden, "shapes agree");
  const Eigen::Index h = shape_.hidden;
  const Eigen::VectorXf x =
      (weight("in_w") * input + weight("in_b").col(0)).array().tanh().matrix();
  const Eigen::VectorXf from_input = weight("gru_input_w") * x + weight("gru_input_b").col(0);
  const Eigen::VectorXf from_hidden =
      weight("gru_hidden_w") * hidden + weight("gru_hidden_b").col(0);
  const Eigen::VectorXf reset = sigmoid(from_input.head(h) + from_hidden.head(h));
  const Eigen::VectorXf update = sigmoid(from_input.segment(h, h) + from_hidden.segment(h, h));
  const Eigen::VectorXf fresh =
      (from_input.tail(h) + reset.cwiseProduct(from_hidden.tail(h))).array().tanh().matrix();
  return (1 - update.array()).matrix().cwiseProduct(fresh) + update.cwiseProduct(hidden);
}

Eigen::VectorXf PolicyNetwork::scores(const Eigen::VectorXf& hidden,
                                      const Eigen::MatrixXf& features, bool implementation) const {
  const std::string prefix = implementation ? "implementation_" : "resource_";
  const auto& w = weights_;
  const Eigen::VectorXf context = w.at(prefix + "context") * hidden + w.at(prefix + "bias").col(0);
  const Eigen::MatrixXf inner =
      ((w.at(prefix + "feature") * features).colwise() + context).array().tanh().matrix();
  return (w.at(prefix + "out") * inner + w.at(prefix + "skip") * features).row(0).transpose();
}

float PolicyNetwork::value(const Eigen::VectorXf& hidden) const {
  const Eigen::VectorXf inner =
      (weight("value_in") * hidden + weight("value_b").col(0)).array().tanh().matrix();
  return (weight("value_w") * inner)(0, 0) + weight("value_c")(0, 0);
}

Eigen::VectorXf softmax(const Eigen::VectorXf& scores) {
  const Eigen::VectorXf shifted = (scores.array() - scores.maxCoeff()).exp().matrix();
  return shifted / shifted.sum();
}

}  // namespace dynamiccl
