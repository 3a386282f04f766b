#include "tuner/agents/bandit.hpp"

#include <algorithm>

#include "tuner/agents/joint_value.hpp"

namespace dynamiccl {

Bandit::Bandit(const AgentOptions& options, const BeliefOptions& belief)
    : memory_(belief, options), random_(options.seed) {}

Choice Bandit::act(const Task& task) {
  const BeliefMemory::Entry& state = memory_.entry(task);
  if (memory_.finished(task)) return {memory_.recommend(task), 1, false};
  const Posterior posterior = memory_.posterior(state);
  const ArmOutlook& outlook = memory_.outlook(state);
  const std::vector<bool> open = memory_.open_arms(state, outlook);
  // Propensity by counting draws: the exact one has no closed form.
  constexpr int kDraws = 64;
  const Eigen::MatrixXd samples = draw_times(posterior, kDraws, random_);
  std::vector<int> wins(open.size(), 0);
  int counted = 0;
  std::optional<std::size_t> chosen;
  for (int d = 0; d < kDraws; ++d) {
    const auto sample = samples.col(d);
    std::size_t winner = 0;
    for (std::size_t a = 1; a < open.size(); ++a)
      if (!state.failed[a] &&
          sample[static_cast<Eigen::Index>(a)] < sample[static_cast<Eigen::Index>(winner)])
        winner = a;
    if (!open[winner]) continue;
    ++wins[winner];
    ++counted;
    if (!chosen) chosen = winner;
  }
  if (!chosen) {
    // Every draw named a known arm: take the open one with the most to gain.
    std::size_t most =
        static_cast<std::size_t>(std::find(open.begin(), open.end(), true) - open.begin());
    for (std::size_t a = 0; a < open.size(); ++a)
      if (open[a] && outlook.expected_gain[static_cast<Eigen::Index>(a)] >
                         outlook.expected_gain[static_cast<Eigen::Index>(most)])
        most = a;
    return {most, 1, true};
  }
  return {*chosen, static_cast<double>(wins[*chosen]) / counted, true};
}

std::vector<PlannedChoice> Bandit::plan(const std::vector<const Task*>& tasks, std::size_t most) {
  constexpr int kDraws = 8;
  std::vector<const BeliefMemory::Entry*> entries;
  std::vector<PlannedChoice> candidates;
  for (const Task* task : tasks) memory_.entry(*task);
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    const BeliefMemory::Entry& entry = memory_.entry(*tasks[t]);
    entries.push_back(&entry);
    const std::vector<bool> open = BeliefMemory::unsettled_arms(entry);
    if (open[0]) candidates.push_back({t, {0, 1, false}});
    const Eigen::MatrixXd samples = draw_times(memory_.posterior(entry), kDraws, random_);
    std::map<std::size_t, int> wins;
    for (int d = 0; d < kDraws; ++d) {
      std::size_t winner = 0;
      for (std::size_t a = 1; a < open.size(); ++a)
        if (!entry.failed[a] && samples(static_cast<Eigen::Index>(a), d) <
                                    samples(static_cast<Eigen::Index>(winner), d))
          winner = a;
      if (winner != 0 && open[winner]) ++wins[winner];
    }
    for (const auto& [arm, count] : wins)
      candidates.push_back({t, {arm, static_cast<double>(count) / kDraws, true}});
  }
  return most_valuable(memory_, entries, candidates, most);
}

}  // namespace dynamiccl
