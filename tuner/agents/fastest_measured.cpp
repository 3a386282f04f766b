#include "tuner/agents/fastest_measured.hpp"

#include <algorithm>

namespace dynamiccl {

std::vector<PlannedChoice> FastestMeasured::plan(const std::vector<const Task*>& tasks,
                                                 std::size_t most) {
  std::vector<PlannedChoice> planned;
  for (std::size_t t = 0; t < tasks.size() && planned.size() < most; ++t)
    if (!seen_[tasks[t]->key].contains(0)) planned.push_back({t, {}});
  return planned.empty() ? asks_->plan(tasks, most) : planned;
}

void FastestMeasured::learn(const Task& task, std::size_t arm, const Trial& trial) {
  if (trial.ok) seen_[task.key][arm] = trial.time.count();
  asks_->learn(task, arm, trial);
}

std::size_t FastestMeasured::recommend(const Task& task) const {
  const auto found = seen_.find(task.key);
  // Without its default nothing is known to be faster than it.
  if (found == seen_.end() || !found->second.contains(0)) return 0;
  return std::min_element(found->second.begin(), found->second.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

void FastestMeasured::reopen(const RegimeKey& key) {
  seen_.erase(key);
  asks_->reopen(key);
}

}  // namespace dynamiccl
