#include "tuner/simulator/vector_simulator.hpp"

#include <cmath>

namespace dynamiccl {

VectorSimulator::VectorSimulator(const SimCatalog& catalog, const SimulatorOptions& options,
                                 std::size_t count, std::uint64_t seed)
    : catalog_(&catalog), options_(options) {
  FastRandom random(seed);
  for (std::size_t i = 0; i < count; ++i) {
    jobs_.push_back({.random = FastRandom(random()), .family = {}, .task = {}});
    new_episode(jobs_.back());
  }
  step_.log_us.resize(count);
  step_.true_regret.resize(count);
  step_.reward.resize(count);
  step_.fault.resize(count);
  step_.task_ended.resize(count);
  step_.episode_ended.resize(count);
}

void VectorSimulator::new_episode(Job& job) {
  job.family = sample_family(*catalog_, options_.stage, options_.spread, job.random);
  job.tasks_left = options_.tasks_per_episode;
  job.interference = 0;
  new_task(job);
}

void VectorSimulator::new_task(Job& job) {
  // 1 KiB to 64 MiB, in whole powers as real sweeps have them.
  make_task(job.family, 10 + static_cast<double>(job.random.below(17)), job.task);
  job.steps_left = options_.steps_per_task;
  job.default_log_us = job.task.log_us[0];
  job.last_arm = 0;
  job.tried = 0;
}

void VectorSimulator::run(Job& job, std::uint32_t arm, std::size_t place) {
  DYN_ASSERT(arm < job.task.log_us.size(), "an arm of the task's space");
  const SimFamily& family = job.family;
  if (family.interference_rate > 0 && job.random.chance(family.interference_rate))
    job.interference = job.interference > 0 ? 0 : job.random.uniform(0.1, kMaxInterferenceLoss);
  const auto implementation = static_cast<std::size_t>(job.task.space->model.implementation(arm));
  const double slowdown =
      -std::log1p(-job.interference * static_cast<double>(family.sensitivity[implementation]));
  double noise = family.spread.noise * job.random.normal();
  if (job.random.chance(family.spread.outlier_rate)) noise += job.random.uniform(0, std::log(3.0));
  const bool fault = family.fault_rate > 0 && arm != 0 && job.random.chance(family.fault_rate);
  const double log_us = static_cast<double>(job.task.log_us[arm]) + slowdown + noise;

  StepOutcome outcome;
  outcome.step = outcome.call = Micros{std::exp(log_us)};
  outcome.reference_step = outcome.reference_call = Micros{std::exp(job.default_log_us)};
  outcome.switched = arm != job.last_arm;
  outcome.fault = fault;
  outcome.congestion = job.interference / kMaxInterferenceLoss;
  outcome.tier_max = job.task.state.tier_max;
  if (arm < 64) {
    outcome.exploratory = (job.tried >> arm & 1) == 0;
    job.tried |= std::uint64_t{1} << arm;
  }
  step_.log_us[place] = static_cast<float>(log_us);
  step_.true_regret[place] = job.task.log_us[arm] - job.task.best_log_us;
  step_.reward[place] = reward(outcome, options_.weights);
  step_.fault[place] = fault ? 1 : 0;
  job.last_arm = arm;
}

const SimStep& VectorSimulator::step(std::span<const std::uint32_t> arms) {
  DYN_ASSERT(arms.size() == jobs_.size(), "one arm per job");
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    Job& job = jobs_[i];
    run(job, arms[i], i);
    const bool task_ended = --job.steps_left == 0;
    const bool episode_ended = task_ended && --job.tasks_left == 0;
    step_.task_ended[i] = task_ended ? 1 : 0;
    step_.episode_ended[i] = episode_ended ? 1 : 0;
    if (episode_ended) {
      new_episode(job);
    } else if (task_ended) {
      new_task(job);
    }
  }
  return step_;
}

}  // namespace dynamiccl
