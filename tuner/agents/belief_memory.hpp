#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "core/statistics/fast_random.hpp"
#include "tuner/agents/belief.hpp"

namespace dynamiccl {

/// What follows from a posterior for choosing and for stopping, per arm.
struct ArmOutlook {
  Eigen::VectorXd mean;  ///< ln(us)
  Eigen::VectorXd sd;
  /// Expected relative gain over the best mean from one more measurement of the arm (knowledge
  /// gradient): what is known already to within the noise has little left to give.
  Eigen::VectorXd expected_gain;
  std::size_t best = 0;         ///< lowest mean among the arms that did not fail
  std::size_t recommended = 0;  ///< `best` if it is faster than the default with enough certainty
};

/// @param failed arms that are out; the default is never out
/// @param noise_sd of one measurement
/// @param safety probability of being faster than the default that a recommendation needs
ArmOutlook outlook_of(const Posterior& posterior, const std::vector<bool>& failed, double noise_sd,
                      double safety);

/// The same without the joint covariance: `with_best` gives its column of the best arm.
ArmOutlook outlook_of(const Eigen::VectorXd& mean, const Eigen::VectorXd& variance,
                      const std::function<Eigen::VectorXd(std::size_t)>& with_best,
                      const std::vector<bool>& failed, double noise_sd, double safety);

/// Draws from a joint posterior, one per column. [arms, count]
Eigen::MatrixXd draw_times(const Posterior& posterior, int count, FastRandom& random);

/// What agents that share a belief over tasks keep per task.
class BeliefMemory {
 public:
  BeliefMemory(const BeliefOptions& belief, const AgentOptions& options);

  struct Entry {
    BeliefView view;
    std::vector<bool> failed;
    std::vector<int> tries;
    std::vector<double> seen;  ///< mean ln(us) of the arm's measurements
    int evaluations = 0;
    mutable PosteriorMargins margins;
    mutable std::optional<std::uint64_t> outlook_version;  ///< of the belief that `outlook` shows
    mutable ArmOutlook outlook;
  };
  Entry& entry(const Task& task);
  [[nodiscard]] const Entry* find(const Task& task) const;
  void learn(const Task& task, std::size_t arm, const Trial& trial);
  void reopen(const RegimeKey& key);
  [[nodiscard]] Posterior posterior(const Entry& entry) const {
    return belief_.posterior(entry.view, margins(entry));
  }
  /// Of what was measured so far; valid until the next learn() or reopen().
  [[nodiscard]] const PosteriorMargins& margins(const Entry& entry) const;
  /// Made once for what was measured so far; valid until the next learn() or reopen().
  [[nodiscard]] const ArmOutlook& outlook(const Entry& entry) const;
  /// Is there too little left to gain, or is the budget used up?
  [[nodiscard]] bool finished(const Task& task) const;
  [[nodiscard]] std::size_t recommend(const Task& task) const;
  /// Arms whose measurement may still change the recommendation.
  [[nodiscard]] std::vector<bool> open_arms(const Entry& entry, const ArmOutlook& outlook) const;
  /// Arms that were not looked at often enough to know them; for plans over many tasks.
  [[nodiscard]] static std::vector<bool> unsettled_arms(const Entry& entry);
  [[nodiscard]] const TimeBelief& belief() const { return belief_; }
  [[nodiscard]] const AgentOptions& options() const { return options_; }

 private:
  void weigh_noise(double difference, int before);

  TimeBelief belief_;
  AgentOptions options_;
  double squared_noise_;     ///< estimate
  double noise_weight_ = 6;  ///< measurements that the estimate counts for
  std::map<RegimeKey, Entry> entries_;
};

}  // namespace dynamiccl
