#pragma once

#include <map>
#include <memory>

#include "tuner/agents/arm_history.hpp"

namespace dynamiccl {

/// Never changes anything: the library's own choice.
std::unique_ptr<Agent> make_default_agent();
/// Recommends what Task::prior_log_us has lowest, the default without a prior.
std::unique_ptr<Agent> make_prior_agent();
/// Uniform over the arms not yet tried; the floor that any search must beat.
std::unique_ptr<Agent> make_random_agent(const AgentOptions& options);
/// Every arm `repeats` times, in rounds: the oracle.
std::unique_ptr<Agent> make_exhaustive_agent(const AgentOptions& options);

/// Memory per key, shared by the agents that search each key for itself.
class KeyedHistory {
 public:
  ArmHistory& of(const Task& task);
  [[nodiscard]] const ArmHistory* find(const Task& task) const;
  void erase(const RegimeKey& key) { histories_.erase(key); }
  /// The measured arm with the lowest median, else the default.
  [[nodiscard]] std::size_t best_or_default(const Task& task) const;

 private:
  std::map<RegimeKey, ArmHistory> histories_;
};

}  // namespace dynamiccl
