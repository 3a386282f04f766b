#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <optional>
#include <vector>

#include "tuner/agents/agent.hpp"

namespace dynamiccl {

/// How alike two (task, arm) pairs are expected to be: standard deviations of ln(time) that they
/// share, and over which distances they stop sharing. A Gaussian process with this kernel is
/// Bayesian linear regression in the kernel's feature space, so that sampling from it is linear
/// Thompson sampling (Agrawal & Goyal 2013; kernelised: Chowdhury & Gopalan 2017).
/// The values follow the marginal likelihood of tune_ranks' bare-metal sweep and were then chosen
/// among by replays of that sweep and of tune_cpu's first (reports/measured/tune-cpu-2026-11),
/// held-out cells included.
struct BeliefOptions {
  double regime_sd = 1.5;           ///< level of a regime: common to its tasks and their arms
  double level_sd = 1.5;            ///< level that changes with size, ranks and collective
  double task_sd = 0.2;             ///< level of one task alone
  double implementation_sd = 0.25;  ///< of an implementation choice
  double resource_sd = 0.25;        ///< of a resource setting within an implementation
  double pieces_sd = 0.07;          ///< per doubling of the segments that a message is cut into
  double arm_sd = 0.08;             ///< of one arm in one task alone
  double level_scale = 10;          ///< doublings of the size over which the level changes
  double size_scale = 8;            ///< doublings of the size over which an arm's standing changes
  double ranks_scale = 2;           ///< doublings of the ranks, for both
  double resource_scale = 3;        ///< doublings of a resource
  double other_implementation = 0.15;  ///< correlation of arms that differ in the implementation
  double other_regime = 0.45;          ///< of the same task in another regime
  double other_collective = 0.1;
  double noise_sd = 0.10;     ///< between launches of one arm, until repeats say
  double launch_share = 0.6;  ///< of its square: common to all that one launch measured
};

/// What the kernel compares: a task's place and an arm's choices, in numbers.
struct BeliefTask {
  std::uint64_t id = 0;      ///< the key
  std::uint64_t regime = 0;  ///< regime and backend
  int collective = 0;
  int group_size = 1;
  double log2_size = 0;
};
struct BeliefArm {
  std::vector<std::uint32_t> implementation;  ///< digests of the values, one per knob
  std::vector<double> resources;              ///< log2; kDefaultResource for "default"
  double pieces = 0;                          ///< log2 of the segments of a message; 0 = one
};

/// Arms of a task as the belief sees them; made once per task.
struct BeliefView {
  BeliefTask task;
  std::shared_ptr<const std::vector<BeliefArm>> arms;
  std::vector<double> prior;  ///< mean of ln(us) before any measurement
};

BeliefView make_view(const Task& task);

/// Joint normal belief over a task's arms.
struct Posterior {
  Eigen::VectorXd mean;        ///< ln(us) per arm
  Eigen::MatrixXd covariance;  ///< of the noise-free times
};

/// Each arm's own part of a Posterior, and what any one column of its covariance is made from: what
/// an outlook needs, in time linear in the arms.
struct PosteriorMargins {
  Eigen::VectorXd mean;
  Eigen::VectorXd variance;
  Eigen::MatrixXd solved;        ///< [arms, at least `points`]
  Eigen::Index points = 0;       ///< measurements that are in
  std::uint64_t generation = 0;  ///< of the belief whose measurements they are
  /// An arm's row of it: [points].
  [[nodiscard]] Eigen::VectorXd solved_for(Eigen::Index arm) const;
};

/// Arms of any tasks whose covariance with others is asked for.
struct AskedArms {
  struct Place {
    const BeliefView* view;
    std::size_t arm;
  };
  std::vector<Place> places;
  Eigen::MatrixXd solved;  ///< [measurements, places], of the arms' margins
};

/// What all measurements say of any task's arms. Exact; grows by one row per measurement and
/// forgets the oldest beyond `capacity`.
class TimeBelief {
 public:
  explicit TimeBelief(const BeliefOptions& options, std::size_t capacity = 1500);

  /// @param log_us as measured; values further from what was expected than 6 standard deviations
  /// are pulled in, as one launch can always be spoiled
  /// @param launch of the measurement; nullopt = it shares its launch with no other
  void observe(const BeliefView& view, std::size_t arm, double log_us,
               std::optional<std::int64_t> launch = std::nullopt);
  /// Shape: arms of the view.
  [[nodiscard]] Posterior posterior(const BeliefView& view) const;
  /// The same from margins that are up to date: without solving for all measurements once more.
  [[nodiscard]] Posterior posterior(const BeliefView& view, const PosteriorMargins& margins) const;
  [[nodiscard]] PosteriorMargins margins(const BeliefView& view) const;
  /// Brings margins of the same view up to date; cheap when only measurements were added.
  void refresh(const BeliefView& view, PosteriorMargins& margins) const;
  /// Covariance of every arm with one of them. @param margins of the same view and measurements
  [[nodiscard]] Eigen::VectorXd covariance_with(const BeliefView& view,
                                                const PosteriorMargins& margins,
                                                std::size_t arm) const;
  /// Covariance of every arm of a task with each of several arms of any tasks. [arms, asked]
  [[nodiscard]] Eigen::MatrixXd covariance_with(const BeliefView& view,
                                                const PosteriorMargins& margins,
                                                const AskedArms& asked) const;
  /// Mean and variance of one arm without the others.
  [[nodiscard]] std::pair<double, double> marginal(const BeliefView& view, std::size_t arm) const;
  /// Another noise than the options say, from what repeated measurements differed by.
  void set_noise(double sd);
  [[nodiscard]] double noise_sd() const { return noise_sd_; }
  /// ln of how likely what was measured is under the options, up to a constant.
  [[nodiscard]] double log_likelihood() const;
  /// Drops what was measured of a task.
  void forget(std::uint64_t task);
  [[nodiscard]] std::size_t observations() const { return points_.size(); }
  /// Another number after every change.
  [[nodiscard]] std::uint64_t version() const { return version_; }
  [[nodiscard]] const BeliefOptions& options() const { return options_; }

 private:
  struct Point {
    BeliefTask task;
    std::shared_ptr<const std::vector<BeliefArm>> arms;
    std::size_t arm;
    double prior;
    double log_us;
    std::optional<std::int64_t> launch;
  };
  /// What two tasks share, whatever the arms.
  struct TaskKernel {
    double level = 0;   ///< covariance of their levels
    double shared = 0;  ///< correlation of an arm's standing
    bool same = false;
  };
  [[nodiscard]] TaskKernel task_kernel(const BeliefTask& a, const BeliefTask& b) const;
  [[nodiscard]] double arm_kernel(const TaskKernel& tasks, const BeliefArm& a,
                                  const BeliefArm& b) const;
  [[nodiscard]] double kernel(const BeliefTask& ta, const BeliefArm& a, const BeliefTask& tb,
                              const BeliefArm& b) const;
  /// Covariance of the noise-free time with every measurement.
  [[nodiscard]] Eigen::VectorXd row_for(const BeliefTask& task, const BeliefArm& arm) const;
  void append(const Point& point);
  void rebuild();

  BeliefOptions options_;
  std::size_t capacity_;
  double noise_sd_;
  std::uint64_t version_ = 0;
  std::uint64_t generation_ = 1;  ///< another after measurements were dropped
  std::vector<Point> points_;
  Eigen::MatrixXd factor_;    ///< lower Cholesky factor in its top left corner
  Eigen::VectorXd whitened_;  ///< factor^-1 (log_us - prior)
};

}  // namespace dynamiccl
