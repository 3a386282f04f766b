#include "tuner/agents/joint_value.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace dynamiccl {
namespace {

/// Gauss-Hermite quadrature of a standard normal.
struct Node {
  double z;
  double weight;
};
constexpr std::array kNodes{Node{-2.856970013872806, 0.011257411327721},
                            Node{-1.355626179974266, 0.222075922005613}, Node{0, 0.533333333333333},
                            Node{1.355626179974266, 0.222075922005613},
                            Node{2.856970013872806, 0.011257411327721}};

/// What an uncertain saving counts for: its expectation less this many standard deviations.
/// Without, nothing would be confirmed; with much more, nothing new would be tried.
constexpr double kCaution = 0.3;
/// Weight of the value without caution beside it: of two that confirm nothing, which may.
constexpr double kHope = 1;

/// Of the default's time, by what is faster by `log_factor`.
double share_saved(double log_factor) { return log_factor > 0 ? -std::expm1(-log_factor) : 0; }

}  // namespace

JointValue::JointValue(const BeliefMemory& memory,
                       const std::vector<const BeliefMemory::Entry*>& entries)
    : memory_(memory) {
  for (const BeliefMemory::Entry* entry : entries) {
    const PosteriorMargins& margins = memory.margins(*entry);
    Known known{entry, margins.mean[0] - margins.mean.array(), {}, 0};
    const Eigen::VectorXd shared = memory.belief().covariance_with(entry->view, margins, 0);
    known.variance =
        (margins.variance.array() + margins.variance[0] - 2 * shared.array()).max(0).matrix();
    known.variance[0] = 0;
    const Eigen::VectorXd none = Eigen::VectorXd::Zero(known.variance.size());
    known.saved = saved(known, none, 0, kCaution);
    known.hoped = saved(known, none, 0, 0);
    tasks_.push_back(std::move(known));
  }
}

double JointValue::saved(const Known& task, const Eigen::VectorXd& shift, double z,
                         double caution) const {
  double best = 0;
  for (Eigen::Index a = 1; a < shift.size(); ++a) {
    if (task.entry->failed[static_cast<std::size_t>(a)]) continue;
    const double left = task.variance[a] - shift[a] * shift[a];
    best = std::max(best, task.faster[a] + shift[a] * z - caution * std::sqrt(std::max(left, 0.0)));
  }
  return share_saved(best);
}

double JointValue::of(std::size_t task, std::size_t arm) const {
  const BeliefMemory::Entry& asked = *tasks_[task].entry;
  const PosteriorMargins& margins = memory_.margins(asked);
  const double noise = memory_.belief().noise_sd();
  const double spread =
      std::sqrt(std::max(margins.variance[static_cast<Eigen::Index>(arm)], 0.0) + noise * noise);
  double value = 0;
  for (const Known& other : tasks_) {
    Eigen::VectorXd shift = memory_.belief().covariance_between(
        asked.view, margins, arm, other.entry->view, memory_.margins(*other.entry));
    shift = (shift[0] - shift.array()).matrix() / spread;
    if (shift.cwiseAbs().maxCoeff() < 1e-3) continue;
    for (const Node& node : kNodes) {
      value += node.weight * saved(other, shift, node.z, kCaution);
      value += kHope * node.weight * saved(other, shift, node.z, 0);
    }
    value -= other.saved + kHope * other.hoped;
  }
  return std::max(value, 0.0);
}

std::vector<PlannedChoice> most_valuable(const BeliefMemory& memory,
                                         const std::vector<const BeliefMemory::Entry*>& entries,
                                         const std::vector<PlannedChoice>& candidates,
                                         std::size_t most) {
  const JointValue value(memory, entries);
  std::vector<double> worth;
  for (const PlannedChoice& candidate : candidates)
    worth.push_back(value.of(candidate.task, candidate.choice.arm));
  std::vector<std::size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return worth[a] > worth[b]; });
  std::vector<PlannedChoice> chosen;
  for (const std::size_t c : order) {
    if (chosen.size() == most || !(worth[c] > 0)) break;
    const bool taken = std::any_of(chosen.begin(), chosen.end(), [&](const PlannedChoice& other) {
      return other.task == candidates[c].task;
    });
    if (!taken) chosen.push_back(candidates[c]);
  }
  return chosen;
}

}  // namespace dynamiccl
