#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tuner/reward/reward.hpp"
#include "tuner/simulator/world.hpp"

namespace dynamiccl {

/// The worlds that a policy is trained in, and how long it stays in each.
struct SimulatorOptions {
  CurriculumStage stage = CurriculumStage::first;
  WorldSpread spread;
  RewardWeights weights;
  int tasks_per_episode = 3;  ///< sizes of one family, one after the other
  int steps_per_task = 8;     ///< evaluations
};

/// What one step brought to every job; arrays of count() entries, overwritten by every step.
struct SimStep {
  std::vector<float> log_us;       ///< measured, with noise and interference
  std::vector<float> true_regret;  ///< ln(true time of the arm / best of the task), hidden
  std::vector<RewardTerms> reward;
  std::vector<std::uint8_t> fault;          ///< the call failed: log_us says nothing
  std::vector<std::uint8_t> task_ended;     ///< the next step is for another size
  std::vector<std::uint8_t> episode_ended;  ///< the next step is in another regime
};

/// Many independent simulated jobs, advanced together. One thread; at least 100,000 steps/s.
class VectorSimulator {
 public:
  /// The catalog must outlive the simulator.
  VectorSimulator(const SimCatalog& catalog, const SimulatorOptions& options, std::size_t count,
                  std::uint64_t seed);

  [[nodiscard]] std::size_t count() const { return jobs_.size(); }
  [[nodiscard]] const SimTask& task(std::size_t job) const { return jobs_[job].task; }
  [[nodiscard]] const SimFamily& family(std::size_t job) const { return jobs_[job].family; }
  /// Share of bandwidth lost to other load right now.
  [[nodiscard]] double interference(std::size_t job) const { return jobs_[job].interference; }

  /// Every job runs its arm once. @throws Error(bug) when an arm does not exist
  const SimStep& step(std::span<const std::uint32_t> arms);

 private:
  struct Job {
    FastRandom random;
    SimFamily family;
    SimTask task;
    double interference = 0;
    double default_log_us = 0;
    std::uint32_t last_arm = 0;
    int tasks_left = 0;
    int steps_left = 0;
    std::uint64_t tried = 0;  ///< bits of the first 64 arms
  };
  void new_episode(Job& job);
  void new_task(Job& job);
  void run(Job& job, std::uint32_t arm, std::size_t place);

  const SimCatalog* catalog_;
  SimulatorOptions options_;
  std::vector<Job> jobs_;
  SimStep step_;
};

}  // namespace dynamiccl
