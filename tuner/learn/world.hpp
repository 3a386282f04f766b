#pragma once

#include <memory>
#include <vector>

#include "core/statistics/fast_random.hpp"
#include "core/vocabulary/machine_model.hpp"
#include "tuner/search/search.hpp"
#include "tuner/simulator/arm_model.hpp"

namespace dynamiccl {

/// Curriculum of the training.
///   1: tier 1, BSP, no compression, data parallel
///   2: tiers 1 and 2, also Local-SGD, fp16, a single pipeline
///   3: all tiers and topologies, 3D parallelism, aggressive compression, faults
enum class CurriculumStage { first = 1, second = 2, third = 3 };

/// How far reality strays from the analytic models, as standard deviations of logarithms. Defaults
/// are what such models left unexplained in measured sweeps of MPI and Gloo.
struct WorldSpread {
  double implementation = 0.30;  ///< between an implementation and its model
  double slope = 0.04;           ///< the same per doubling of the size
  double resource = 0.10;        ///< of a resource's value that no model knows
  double arm = 0.04;             ///< what is particular to one arm
  double noise = 0.05;           ///< between launches of the same arm
  double outlier_rate = 0.02;    ///< of launches that take longer by up to a factor of 3
};

/// A space with its models, made once and shared by all places that use it.
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

/// What is drawn first: who runs what, and where.
struct SimJob {
  const SimSpace* space = nullptr;
  int tier = 1;
  State state;  ///< the job's and its surroundings', without the size
  /// Agents see calls that belong to no job, as `tune` measures them; else a step with the call in
  /// it is timed: compute, and of the call what does not hide behind it or slows it.
  bool lone = false;
  double environment_factor = 1;  ///< on all times (container_factor)
  double fault_rate = 0;          ///< of a setting other than the default
};

/// Draws a job as the stage allows; those that scale by themselves less often, those of a parameter
/// server less often than rings.
SimJob draw_job(const SimCatalog& catalog, CurriculumStage stage, FastRandom& random);

/// One cell that an agent searches.
struct SimCell {
  SearchTask search;           ///< as agents see it
  std::vector<double> log_us;  ///< true typical time of every arm, hidden
  double best_log_us = 0;
};

/// Cells of several sizes of one job on one machine.
struct SimPlace {
  SimJob job;
  MachineModel machine;  ///< hidden
  std::vector<SimCell> cells;
  double noise = 0.05;
  double outlier_rate = 0;

  /// One launch of an arm. @param arm of the cell's space
  [[nodiscard]] Trial measure(const SimCell& cell, std::size_t arm, FastRandom& random) const;
};

/// Draws the machine and what no model knows. The truth of an arm is the analytic model
/// (machine_cost) on the machine, with the library's default chosen as if all links were alike:
/// topology, tier, containers, load, group, Local-SGD, overlap and C2C move which arm is best. What
/// agents expect before they look is the model without the machine, as a live search has it.
SimPlace make_place(const SimJob& job, const WorldSpread& spread, FastRandom& random);

inline SimPlace draw_place(const SimCatalog& catalog, CurriculumStage stage, FastRandom& random) {
  return make_place(draw_job(catalog, stage, random), {}, random);
}

}  // namespace dynamiccl
