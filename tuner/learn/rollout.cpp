#include "tuner/learn/rollout.hpp"

#include <algorithm>
#include <cmath>

#include "tuner/agents/task_loop.hpp"

namespace dynamiccl {
namespace {

/// One job of the simulator with the policy's memory of its episode.
struct PolicyJob {
  BeliefMemory memory{BeliefOptions{}, AgentOptions{}};
  Eigen::VectorXf hidden;
  Feedback feedback;
  Episode episode;
};

/// Chooses as PolicyAgent::act; appends a step unless there is nothing left to choose.
std::uint32_t decide(const PolicyNetwork& network, const Task& task, PolicyJob& job,
                     FastRandom& random) {
  const BeliefMemory::Entry& entry = job.memory.entry(task);
  if (job.memory.finished(task)) return static_cast<std::uint32_t>(job.memory.recommend(task));
  job.feedback.interference = task.state.interference;
  RolloutStep step;
  step.input = network.seen(policy_input(task.state, job.feedback));
  job.hidden = network.advance(step.input, job.hidden);
  const ArmOutlook& outlook = job.memory.outlook(entry);
  std::vector<bool> closed = job.memory.open_arms(entry, outlook);
  closed.flip();
  const ArmKnowledge known{outlook, closed, entry.tries, entry.view.prior};
  PolicyWalk walk = walk_heads(network, job.hidden, *task.space, known, &random);
  step.heads = std::move(walk.heads);
  step.log_probability = static_cast<float>(std::log(std::max(walk.probability, 1e-12)));
  step.value = network.value(job.hidden);
  job.episode.push_back(std::move(step));
  return static_cast<std::uint32_t>(walk.arm);
}

void digest(const Task& task, std::uint32_t arm, const Trial& trial, PolicyJob& job) {
  const ArmOutlook before = job.memory.outlook(job.memory.entry(task));
  job.memory.learn(task, arm, trial);
  const BeliefMemory::Entry& entry = job.memory.entry(task);
  const double progress =
      std::min(1.0, static_cast<double>(entry.evaluations) /
                        static_cast<double>(std::max<std::size_t>(1, entry.tries.size())));
  job.feedback = feedback_of(before, job.memory.outlook(entry), arm, trial, progress);
}

/// Load is known where a trigger watches the calls.
void show_load(Task& task, double interference) {
  task.state.interference = task.state.watched ? interference : 0;
}

Trial trial_of(const SimStep& step, std::size_t job) {
  return {step.fault[job] == 0, Micros{std::exp(static_cast<double>(step.log_us[job]))}};
}

}  // namespace

Task task_of(const SimTask& sim) {
  Task task;
  task.key = {"simulated", sim.key};
  task.space = sim.space->space;
  task.state = sim.state;
  task.prior_log_us = sim.prior_log_us;
  return task;
}

Rollout collect(const PolicyNetwork& network, VectorSimulator& simulator, int episodes,
                std::uint64_t seed) {
  FastRandom random(seed);
  Rollout rollout;
  std::vector<PolicyJob> jobs(simulator.count());
  for (PolicyJob& job : jobs) job.hidden = network.initial_state();
  std::vector<std::uint32_t> arms(simulator.count());
  std::vector<int> left(simulator.count(), episodes);
  std::size_t running = simulator.count();
  double reward_sum = 0;
  std::int64_t steps = 0;
  while (running > 0) {
    std::vector<Task> tasks;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      tasks.push_back(task_of(simulator.task(j)));
      show_load(tasks.back(), simulator.interference(j));
      arms[j] = decide(network, tasks[j], jobs[j], random);
    }
    const SimStep& step = simulator.step(arms);
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      if (left[j] == 0) continue;
      const double reward = step.reward[j].total();
      reward_sum += reward;
      ++steps;
      if (!jobs[j].episode.empty()) jobs[j].episode.back().reward += static_cast<float>(reward);
      digest(tasks[j], arms[j], trial_of(step, j), jobs[j]);
      if (step.task_ended[j] != 0) jobs[j].feedback = {};
      if (step.episode_ended[j] == 0) continue;
      if (!jobs[j].episode.empty()) rollout.episodes.push_back(std::move(jobs[j].episode));
      jobs[j] = PolicyJob{};
      jobs[j].hidden = network.initial_state();
      if (--left[j] == 0) --running;
    }
  }
  rollout.mean_reward = reward_sum / static_cast<double>(std::max<std::int64_t>(1, steps));
  return rollout;
}

SimScore score_in_simulator(const std::function<std::unique_ptr<Agent>(std::uint64_t)>& make,
                            VectorSimulator& simulator, int episodes, std::uint64_t seed) {
  FastRandom random(seed);
  SimScore score;
  std::vector<std::unique_ptr<Agent>> agents;
  std::vector<TaskLoop> loops;
  for (std::size_t j = 0; j < simulator.count(); ++j) {
    agents.push_back(make(random()));
    loops.emplace_back(*agents.back());
  }
  std::vector<std::uint32_t> arms(simulator.count());
  std::vector<int> left(simulator.count(), episodes);
  std::size_t running = simulator.count();
  std::int64_t steps = 0;
  std::int64_t ended = 0;
  while (running > 0) {
    std::vector<Task> tasks;
    for (std::size_t j = 0; j < agents.size(); ++j) {
      tasks.push_back(task_of(simulator.task(j)));
      show_load(tasks[j], simulator.interference(j));
      const Choice choice = loops[j].next(tasks[j]);
      arms[j] = static_cast<std::uint32_t>(choice.arm);
      if (left[j] > 0 && choice.exploratory) score.evaluations += 1;
    }
    // The truth behind a task is gone once the simulator has moved on to the next.
    std::vector<std::vector<float>> truth;
    std::vector<float> best;
    for (std::size_t j = 0; j < agents.size(); ++j) {
      truth.push_back(simulator.task(j).log_us);
      best.push_back(simulator.task(j).best_log_us);
    }
    const SimStep& step = simulator.step(arms);
    for (std::size_t j = 0; j < agents.size(); ++j) {
      if (left[j] == 0) continue;
      score.mean_reward += step.reward[j].total();
      ++steps;
      loops[j].observe(tasks[j], trial_of(step, j));
      if (step.task_ended[j] != 0) {
        ++ended;
        score.final_regret += static_cast<double>(truth[j][loops[j].recommend(tasks[j])] - best[j]);
      }
      if (step.episode_ended[j] == 0) continue;
      agents[j] = make(random());
      loops[j] = TaskLoop(*agents[j]);
      if (--left[j] == 0) --running;
    }
  }
  score.mean_reward /= static_cast<double>(std::max<std::int64_t>(1, steps));
  score.final_regret /= static_cast<double>(std::max<std::int64_t>(1, ended));
  score.evaluations /= static_cast<double>(std::max<std::int64_t>(1, ended));
  return score;
}

}  // namespace dynamiccl
