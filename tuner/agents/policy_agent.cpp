#include "tuner/agents/policy_agent.hpp"

#include <algorithm>
#include <cmath>

namespace dynamiccl {

PolicyWalk walk_heads(const PolicyNetwork& network, const Eigen::VectorXf& hidden,
                      const ActionSpace& space, const ArmKnowledge& known, FastRandom* random) {
  PolicyWalk walk;
  Action action;
  for (std::size_t k = 0; k < space.knobs().size(); ++k) {
    HeadStep head;
    head.candidates = head_candidates(space, action, known);
    head.implementation = k < space.implementation_knobs();
    DYN_ASSERT(!head.candidates.values.empty(), "the default never fails");
    if (head.candidates.values.size() > 1) {
      const Eigen::VectorXf odds =
          softmax(network.scores(hidden, head.candidates.features, head.implementation));
      Eigen::Index picked = 0;
      if (random == nullptr) {
        odds.maxCoeff(&picked);
      } else {
        double left = random->uniform();
        while (picked + 1 < odds.size() && left >= static_cast<double>(odds[picked]))
          left -= static_cast<double>(odds[picked++]);
      }
      head.picked = static_cast<std::size_t>(picked);
      walk.probability *= static_cast<double>(odds[picked]);
    }
    action.push_back(head.candidates.values[head.picked]);
    if (head.candidates.values.size() > 1) walk.heads.push_back(std::move(head));
  }
  const auto arm = space.find(action);
  DYN_ASSERT(arm.has_value(), "the masks lead to an arm");
  walk.arm = *arm;
  return walk;
}

Feedback feedback_of(const ArmOutlook& before, const ArmOutlook& after, std::size_t arm,
                     const Trial& trial, double progress) {
  Feedback feedback;
  feedback.first = false;
  feedback.fault = !trial.ok;
  feedback.was_default = arm == 0;
  feedback.progress = progress;
  if (trial.ok && trial.time.count() > 0) {
    const auto i = static_cast<Eigen::Index>(arm);
    const double log_us = std::log(trial.time.count());
    feedback.relative = log_us - after.mean[0];
    // The level of an unmeasured task is unknown to a factor of several: that is no surprise.
    feedback.surprise = (log_us - before.mean[i]) / std::max(before.sd[i], 0.05);
  }
  feedback.gain = before.mean[static_cast<Eigen::Index>(before.best)] -
                  after.mean[static_cast<Eigen::Index>(after.best)];
  return feedback;
}

PolicyAgent::PolicyAgent(const Policy& policy, const AgentOptions& options,
                         const BeliefOptions& belief)
    : network_(policy.network()),
      version_(policy.version()),
      memory_(belief, options),
      random_(options.seed) {}

Choice PolicyAgent::act(const Task& task) {
  const BeliefMemory::Entry& entry = memory_.entry(task);
  if (memory_.finished(task)) return {memory_.recommend(task), 1, false};
  auto hidden = hidden_.try_emplace(task.key.regime, network_.initial_state()).first;
  Feedback& feedback = feedback_[task.key];
  feedback.interference = task.state.interference;
  hidden->second = network_.advance(policy_input(task.state, feedback), hidden->second);
  const ArmOutlook& outlook = memory_.outlook(entry);
  // Arms with nothing left to show count as failed for the walk: the masks keep them out.
  const std::vector<bool> open = memory_.open_arms(entry, outlook);
  std::vector<bool> closed(open.size());
  for (std::size_t a = 0; a < open.size(); ++a) closed[a] = !open[a];
  const ArmKnowledge known{outlook, closed, entry.tries, entry.view.prior};
  const PolicyWalk walk = walk_heads(network_, hidden->second, *task.space, known, &random_);
  return {walk.arm, walk.probability, true};
}

void PolicyAgent::learn(const Task& task, std::size_t arm, const Trial& trial) {
  const ArmOutlook before = memory_.outlook(memory_.entry(task));
  memory_.learn(task, arm, trial);
  const BeliefMemory::Entry& entry = memory_.entry(task);
  const double progress =
      std::min(1.0, static_cast<double>(entry.evaluations) /
                        static_cast<double>(std::max<std::size_t>(1, entry.tries.size())));
  feedback_[task.key] = feedback_of(before, memory_.outlook(entry), arm, trial, progress);
}

void PolicyAgent::reopen(const RegimeKey& key) {
  memory_.reopen(key);
  feedback_.erase(key);
}

}  // namespace dynamiccl
