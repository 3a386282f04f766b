#include "tuner/agents/online_update.hpp"

#include <cmath>
#include <string>
#include <utility>

#include "core/statistics/statistics.hpp"

namespace dynamiccl {
namespace {

std::string prefix_of(const HeadStep& head) {
  return head.implementation ? "implementation_" : "resource_";
}

double log_probability(const PolicyNetwork& network, const OnlineDecision& decision) {
  double sum = 0;
  for (const HeadStep& head : decision.heads) {
    const Eigen::VectorXf odds =
        softmax(network.scores(decision.hidden, head.candidates.features, head.implementation));
    sum += std::log(
        std::max(static_cast<double>(odds[static_cast<Eigen::Index>(head.picked)]), 1e-12));
  }
  return sum;
}

/// Adds `factor` times the gradient of the decision's log probability.
void add_gradient(const PolicyNetwork& network, const OnlineDecision& decision, float factor,
                  Weights& gradient) {
  for (const HeadStep& head : decision.heads) {
    const std::string prefix = prefix_of(head);
    const Weights& w = network.weights();
    const Eigen::MatrixXf& features = head.candidates.features;
    Eigen::VectorXf by_score =
        -softmax(network.scores(decision.hidden, features, head.implementation));
    by_score[static_cast<Eigen::Index>(head.picked)] += 1;
    by_score *= factor;
    const Eigen::VectorXf context =
        w.at(prefix + "context") * decision.hidden + w.at(prefix + "bias").col(0);
    const Eigen::MatrixXf inner =
        ((w.at(prefix + "feature") * features).colwise() + context).array().tanh().matrix();
    const Eigen::MatrixXf by_inner =
        ((w.at(prefix + "out").transpose() * by_score.transpose()).array() *
         (1 - inner.array().square()))
            .matrix();
    gradient.at(prefix + "skip") += by_score.transpose() * features.transpose();
    gradient.at(prefix + "out") += by_score.transpose() * inner.transpose();
    gradient.at(prefix + "feature") += by_inner * features.transpose();
    gradient.at(prefix + "bias") += by_inner.rowwise().sum();
    gradient.at(prefix + "context") += by_inner.rowwise().sum() * decision.hidden.transpose();
  }
}

/// The heads' weights alone, all zero.
Weights zeros_like(const Weights& weights) {
  Weights zeros;
  for (const auto& [name, matrix] : weights)
    if (name.starts_with("implementation_") || name.starts_with("resource_"))
      zeros.emplace(name, Eigen::MatrixXf::Zero(matrix.rows(), matrix.cols()));
  return zeros;
}

}  // namespace

bool OnlineUpdate::add(OnlineDecision decision, PolicyNetwork& network) {
  if (decision.heads.empty() || !std::isfinite(decision.reward)) return false;
  batch_.push_back(std::move(decision));
  if (batch_.size() < options_.batch) return false;
  std::vector<double> rewards;
  for (const OnlineDecision& one : batch_) rewards.push_back(one.reward);
  const double typical = mean(rewards);
  const double spread = standard_deviation(rewards);
  if (!(spread > 1e-9)) {  // all alike: nothing was better than anything else
    batch_.clear();
    return false;
  }
  for (int epoch = 0; epoch < options_.epochs; ++epoch) {
    Weights gradient = zeros_like(network.weights());
    for (const OnlineDecision& one : batch_) {
      const double advantage = (one.reward - typical) / spread;
      const double ratio = std::exp(log_probability(network, one) - one.log_probability);
      // Beyond the clip the objective is flat: the decision says nothing more.
      const bool flat = advantage > 0 ? ratio > 1 + options_.clip : ratio < 1 - options_.clip;
      if (flat) continue;
      add_gradient(network, one,
                   static_cast<float>(advantage * ratio / static_cast<double>(batch_.size())),
                   gradient);
    }
    Weights weights = network.weights();
    for (const auto& [name, matrix] : gradient)
      weights.at(name) += static_cast<float>(options_.learning_rate) * matrix;
    network = PolicyNetwork(network.shape(), std::move(weights));
  }
  batch_.clear();
  return true;
}

}  // namespace dynamiccl
