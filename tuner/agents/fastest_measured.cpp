#include "tuner/agents/fastest_measured.hpp"

#include <algorithm>

namespace dynamiccl {

std::vector<PlannedChoice> FastestMeasured::plan(const std::vector<const Task*>& tasks,
                                                 std::size_t most) {
  std::vector<PlannedChoice> planned;
  for (std::size_t t = 0; t < tasks.size() && planned.size() < most; ++t)
    if (!seen_[place_of(*tasks[t])].contains(0)) planned.push_back({t, {}});
  if (!planned.empty()) return planned;
  // A setting that is asked for again would take the same: its time is given at once, until
  // something new is asked for.
  for (;;) {
    planned = asks_->plan(tasks, most);
    const std::size_t known = std::erase_if(planned, [&](const PlannedChoice& choice) {
      return told(*tasks[choice.task], choice.choice.arm);
    });
    if (!planned.empty() || known == 0) return planned;
  }
}

bool FastestMeasured::told(const Task& task, std::size_t arm) {
  const auto& seen = seen_[place_of(task)];
  const auto found = seen.find(arm);
  if (found == seen.end()) return false;
  asks_->learn(task, arm, {.ok = true, .time = Micros{found->second}});
  return true;
}

void FastestMeasured::learn(const Task& task, std::size_t arm, const Trial& trial) {
  if (trial.ok) seen_[place_of(task)][arm] = trial.time.count();
  asks_->learn(task, arm, trial);
}

std::size_t FastestMeasured::recommend(const Task& task) const {
  const auto found = seen_.find(place_of(task));
  // Without its default nothing is known to be faster than it.
  if (found == seen_.end() || !found->second.contains(0)) return 0;
  return std::min_element(found->second.begin(), found->second.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

void FastestMeasured::reopen(const RegimeKey& key) {
  std::erase_if(seen_, [&](const auto& seen) { return seen.first.first == key; });
  asks_->reopen(key);
}

}  // namespace dynamiccl
