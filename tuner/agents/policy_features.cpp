#include "tuner/agents/policy_features.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tuner/state/features.hpp"

namespace dynamiccl {
namespace {

float clipped(double value, double limit = 4) {
  return std::isnan(value) ? 0.0F : static_cast<float>(std::clamp(value, -limit, limit));
}

/// What is summed up over the arms behind one candidate.
struct Summary {
  double mean = std::numeric_limits<double>::infinity();
  double optimistic = std::numeric_limits<double>::infinity();
  double gain = 0;
  double total_gain = 0;
  double prior = std::numeric_limits<double>::infinity();
  double sd = 0;  ///< of the arm with the lowest optimistic mean
  int tries = 0;
  int arms = 0;
  bool has_best = false;
};

Summary summarise(std::size_t first, std::size_t last, const ArmKnowledge& known) {
  Summary s;
  for (std::size_t a = first; a < last; ++a) {
    if (known.failed[a]) continue;
    const auto i = static_cast<Eigen::Index>(a);
    ++s.arms;
    s.tries += known.tries[a];
    s.mean = std::min(s.mean, known.outlook.mean[i]);
    const double optimistic = known.outlook.mean[i] - known.outlook.sd[i];
    if (optimistic < s.optimistic) {
      s.optimistic = optimistic;
      s.sd = known.outlook.sd[i];
    }
    s.gain = std::max(s.gain, known.outlook.expected_gain[i]);
    s.total_gain += known.outlook.expected_gain[i];
    s.prior = std::min(s.prior, known.prior[a]);
    s.has_best = s.has_best || a == known.outlook.best;
  }
  return s;
}

}  // namespace

Eigen::VectorXf policy_input(const State& state, const Feedback& feedback) {
  Eigen::VectorXf encoded = encode(state);
  Eigen::Index column = 0;
  for (const Feature& feature : feature_table()) {
    if (!feature.source.in_policy) encoded.segment(column, feature.width).setZero();
    column += feature.width;
  }
  Eigen::VectorXf input(encoded.size() + kFeedbackFeatures);
  input.head(encoded.size()) = encoded;
  input.tail(kFeedbackFeatures) << (feedback.first ? 1.0F : 0.0F), clipped(feedback.relative * 2),
      clipped(feedback.surprise), clipped(feedback.gain * 4), (feedback.fault ? 1.0F : 0.0F),
      (feedback.was_default ? 1.0F : 0.0F), clipped(feedback.progress),
      clipped(feedback.interference);
  return input;
}

HeadCandidates head_candidates(const ActionSpace& space, std::span<const std::uint8_t> prefix,
                               const ArmKnowledge& known) {
  const std::size_t knob = prefix.size();
  const std::vector<bool> mask = space.mask(prefix);
  Action longer(prefix.begin(), prefix.end());
  longer.push_back(0);
  const double best = known.outlook.mean[static_cast<Eigen::Index>(known.outlook.best)];
  const double best_prior = *std::min_element(known.prior.begin(), known.prior.end());
  HeadCandidates head;
  std::vector<std::array<float, kCandidateFeatures>> columns;
  for (std::size_t v = 0; v < mask.size(); ++v) {
    if (!mask[v]) continue;
    longer.back() = static_cast<std::uint8_t>(v);
    const auto [first, last] = space.range(longer);
    const Summary s = summarise(first, last, known);
    if (s.arms == 0) continue;
    const auto magnitude = space.magnitude(knob, longer.back());
    head.values.push_back(longer.back());
    columns.push_back(
        {clipped((s.mean - best) * 4), clipped((s.optimistic - best) * 4), clipped(s.sd * 4),
         clipped(s.gain * 10), clipped(std::log(s.gain + 1e-4) / 4), clipped(s.total_gain * 4),
         clipped(std::log1p(s.tries)), s.tries == 0 ? 1.0F : 0.0F, clipped(s.prior - best_prior),
         clipped(std::log2(s.arms) / 4), v == 0 ? 1.0F : 0.0F, s.has_best ? 1.0F : 0.0F,
         magnitude ? clipped(*magnitude / 12 - 1) : 0.0F, static_cast<float>(knob) / 4});
  }
  head.features.resize(kCandidateFeatures, static_cast<Eigen::Index>(columns.size()));
  for (std::size_t c = 0; c < columns.size(); ++c)
    head.features.col(static_cast<Eigen::Index>(c)) =
        Eigen::Map<const Eigen::VectorXf>(columns[c].data(), kCandidateFeatures);
  return head;
}

}  // namespace dynamiccl
