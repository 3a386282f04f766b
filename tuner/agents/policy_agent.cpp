#include "tuner/agents/policy_agent.hpp"

#include <algorithm>
#include <cmath>

#include "tuner/agents/joint_value.hpp"

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
                         const BeliefOptions& belief, std::string_view name)
    : network_(policy.network()),
      name_(name),
      version_(policy.version()),
      memory_(belief, options),
      random_(options.seed) {}

PolicyAgent::Proposal PolicyAgent::advanced(const Task& task) {
  const auto before = hidden_.find(task.key.regime);
  Feedback& feedback = feedback_[task.key];
  feedback.interference = task.state.interference;
  Proposal proposal;
  proposal.input = network_.seen(policy_input(task.state, feedback));
  proposal.hidden = network_.advance(
      proposal.input, before == hidden_.end() ? network_.initial_state() : before->second);
  return proposal;
}

void PolicyAgent::keep(const RegimeKey& key, const Proposal& proposal) {
  hidden_[key.regime] = proposal.hidden;
  if (steps_ == nullptr) return;
  steps_->push_back({proposal.input, proposal.walk.heads,
                     static_cast<float>(std::log(std::max(proposal.walk.probability, 1e-12))),
                     network_.value(proposal.hidden), 0});
}

Choice PolicyAgent::act(const Task& task) {
  const BeliefMemory::Entry& entry = memory_.entry(task);
  if (memory_.finished(task)) return {memory_.recommend(task), 1, false};
  Proposal proposal = advanced(task);
  const ArmOutlook& outlook = memory_.outlook(entry);
  // Arms with nothing left to show count as failed for the walk: the masks keep them out.
  std::vector<bool> closed = memory_.open_arms(entry, outlook);
  closed.flip();
  const ArmKnowledge known{outlook, closed, entry.tries, entry.view.prior};
  proposal.walk = walk_heads(network_, proposal.hidden, *task.space, known, &random_);
  keep(task.key, proposal);
  return {proposal.walk.arm, proposal.walk.probability, true};
}

std::vector<PlannedChoice> PolicyAgent::plan(const std::vector<const Task*>& tasks,
                                             std::size_t most) {
  constexpr int kWalks = 4;
  std::vector<const BeliefMemory::Entry*> entries;
  std::vector<Proposal> proposals;
  std::map<std::pair<std::size_t, std::size_t>, PolicyWalk> walks;  // by task and arm
  std::vector<PlannedChoice> candidates;
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    const BeliefMemory::Entry& entry = memory_.entry(*tasks[t]);
    entries.push_back(&entry);
    proposals.push_back(advanced(*tasks[t]));
    std::vector<bool> closed = BeliefMemory::unsettled_arms(entry);
    closed.flip();
    if (!closed[0]) candidates.push_back({t, {0, 1, false}});
    if (std::all_of(closed.begin(), closed.end(), [](bool c) { return c; })) continue;
    // Each walk is shown another draw of what the times may be: what is uncertain may be good.
    const Eigen::MatrixXd draws = draw_times(memory_.posterior(entry), kWalks, random_);
    for (int w = 0; w < kWalks; ++w) {
      ArmOutlook outlook = memory_.outlook(entry);
      outlook.mean = draws.col(w);
      for (std::size_t a = 0; a < closed.size(); ++a)
        if (!entry.failed[a] && outlook.mean[static_cast<Eigen::Index>(a)] <
                                    outlook.mean[static_cast<Eigen::Index>(outlook.best)])
          outlook.best = a;
      const ArmKnowledge known{outlook, closed, entry.tries, entry.view.prior};
      PolicyWalk walk =
          walk_heads(network_, proposals[t].hidden, *tasks[t]->space, known, &random_);
      if (walk.arm == 0) continue;
      candidates.push_back({t, {walk.arm, walk.probability, true}});
      walks.try_emplace({t, walk.arm}, std::move(walk));
    }
  }
  std::vector<PlannedChoice> chosen = most_valuable(memory_, entries, candidates, most);
  for (const PlannedChoice& one : chosen) {
    // A default is measured for what it says of all others; no walk led there.
    const auto walk = walks.find({one.task, one.choice.arm});
    if (walk != walks.end()) proposals[one.task].walk = walk->second;
    keep(tasks[one.task]->key, proposals[one.task]);
  }
  return chosen;
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
