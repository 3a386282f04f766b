#pragma once

#include <memory>
#include <vector>

#include "core/statistics/fast_random.hpp"
#include "tuner/simulator/arm_model.hpp"
#include "tuner/state/state.hpp"
#include "tuner/state/task_key.hpp"

namespace dynamiccl {

/// Curriculum of the pre-training.
///   1: tier 1, BSP, no compression, data parallel
///   2: tiers 1 and 2, also Local-SGD, fp16, a single pipeline
///   3: all tiers, 3D parallelism, aggressive compression, faults
enum class CurriculumStage { first = 1, second = 2, third = 3 };

/// How far reality strays from the analytic models, as standard deviations of logarithms. Defaults
/// are what such models left unexplained in measured sweeps of MPI and Gloo.
struct WorldSpread {
  double implementation = 0.30;  ///< between an implementation and its model
  double slope = 0.04;           ///< the same per doubling of the size
  double resource = 0.15;        ///< depth of a resource knob's optimum
  double arm = 0.04;             ///< what is particular to one arm
  double library_regret = 0.30;  ///< how far the default is from the best, where it is
  double noise = 0.05;           ///< between launches of the same arm
  double outlier_rate = 0.02;    ///< of launches that take longer by up to a factor of 3
};

/// A space with its models, made once and shared by all families that use it.
struct SimSpace {
  SpaceContext context;
  std::shared_ptr<const ActionSpace> space;
  ArmModel model;
};

/// The spaces in which simulated jobs live: backends x collectives x group sizes, parameter servers
/// among them.
class SimCatalog {
 public:
  /// @param backends the spaces of these alone; empty: of all
  explicit SimCatalog(std::vector<Backend> backends = {});
  [[nodiscard]] const std::vector<SimSpace>& spaces() const { return spaces_; }

 private:
  void add(SpaceContext context, const SpaceOptions& options);
  std::vector<Backend> backends_;
  std::vector<SimSpace> spaces_;
};

/// One simulated regime with one backend, collective and group: hidden truth and what a detector
/// would say of it. Tasks of different sizes share the truth.
struct SimFamily {
  const SimSpace* space = nullptr;
  State state;  ///< without the size
  /// Agents see a call that belongs to no job, as `tune` measures it; else one of a training step.
  bool lone = false;
  PathModel truth;    ///< hidden
  PathModel nominal;  ///< what the prior is made of
  WorldSpread spread;
  double environment_factor = 1;
  double interference_rate = 0;  ///< chance per step that load comes or goes
  double fault_rate = 0;
  std::vector<float> implementation_offset;
  std::vector<float> implementation_slope;
  std::vector<float> sensitivity;  ///< of each implementation to interference
  std::vector<float> arm_offset;
  std::vector<double> regret_by_zone;  ///< of the default, per factor 16 in size
};

/// One task of a family.
struct SimTask {
  const SimSpace* space = nullptr;
  State state;
  TaskKey key;
  double log2_size = 0;
  std::vector<float> log_us;         ///< true typical time of every arm, hidden
  std::vector<double> prior_log_us;  ///< analytic prior of every arm
  float best_log_us = 0;
};

/// Draws a regime as the stage allows; regimes that need tuning are drawn more often, those of a
/// parameter server less often than rings.
SimFamily sample_family(const SimCatalog& catalog, CurriculumStage stage, const WorldSpread& spread,
                        FastRandom& random);

/// Fills `task` for a size; keeps its buffers.
void make_task(const SimFamily& family, double log2_size, SimTask& task);

}  // namespace dynamiccl
