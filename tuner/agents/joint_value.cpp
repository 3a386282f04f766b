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
/// Weight of the value without caution next to it: of two that confirm nothing, which may.
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

std::vector<double> JointValue::of(const std::vector<PlannedChoice>& candidates) const {
  const auto count = static_cast<Eigen::Index>(candidates.size());
  AskedArms asked;
  asked.solved.resize(static_cast<Eigen::Index>(memory_.belief().observations()), count);
  Eigen::VectorXd spread(count);
  const double noise = memory_.belief().noise_sd();
  for (Eigen::Index c = 0; c < count; ++c) {
    const auto& [task, choice] = candidates[static_cast<std::size_t>(c)];
    const PosteriorMargins& margins = memory_.margins(*tasks_[task].entry);
    const auto arm = static_cast<Eigen::Index>(choice.arm);
    asked.places.push_back({&tasks_[task].entry->view, choice.arm});
    asked.solved.col(c) = margins.solved_for(arm);
    spread[c] = std::sqrt(std::max(margins.variance[arm], 0.0) + noise * noise);
  }
  std::vector<double> value(candidates.size(), 0);
  for (const Known& other : tasks_) {
    const Eigen::MatrixXd shared =
        memory_.belief().covariance_with(other.entry->view, memory_.margins(*other.entry), asked);
    for (Eigen::Index c = 0; c < count; ++c) {
      const Eigen::VectorXd shift = (shared(0, c) - shared.col(c).array()).matrix() / spread[c];
      if (shift.cwiseAbs().maxCoeff() >= 1e-3)
        value[static_cast<std::size_t>(c)] += gained(other, shift);
    }
  }
  for (double& one : value) one = std::max(one, 0.0);
  return value;
}

double JointValue::gained(const Known& task, const Eigen::VectorXd& shift) const {
  double value = 0;
  for (const Node& node : kNodes) {
    value += node.weight * saved(task, shift, node.z, kCaution);
    value += kHope * node.weight * saved(task, shift, node.z, 0);
  }
  return value - task.saved - kHope * task.hoped;
}

std::vector<PlannedChoice> most_valuable(const BeliefMemory& memory,
                                         const std::vector<const BeliefMemory::Entry*>& entries,
                                         const std::vector<PlannedChoice>& candidates,
                                         std::size_t most) {
  const JointValue value(memory, entries);
  const std::vector<double> worth = value.of(candidates);
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
