#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/vocabulary/units.hpp"
#include "tuner/action/action_space.hpp"
#include "tuner/state/state.hpp"
#include "tuner/state/task_key.hpp"

namespace dynamiccl {

/// One thing to be tuned: calls of one key in one regime.
struct Task {
  RegimeKey key;
  std::shared_ptr<const ActionSpace> space;
  State state;
  /// ln(microseconds) that an analytic model or earlier runs expect of each arm; empty = no idea.
  std::vector<double> prior_log_us;
  /// How much is believed of the differences that it claims, 0 to 1: little of a model's.
  double prior_trust = 0.3;
};

/// What to run next for a task.
struct Choice {
  std::size_t arm = 0;      ///< index into ActionSpace::arms()
  double propensity = 1;    ///< probability with which the agent would choose it again
  bool exploratory = true;  ///< false: the arm is what the agent would recommend
};

/// What an agent that plans wants measured: a choice for one of the tasks that it was shown.
struct PlannedChoice {
  std::size_t task = 0;
  Choice choice;
};

/// What running an arm brought.
struct Trial {
  bool ok = true;  ///< false: failed, refused or wrong data; such an arm is not tried again
  Micros time;     ///< typical time of one call; read only when ok
  /// Its launch, any number: what one launch measured shares whatever made it fast or slow.
  /// nullopt = in a launch of its own.
  std::optional<std::int64_t> launch = std::nullopt;
};

/// Chooses settings. One interface for all, so that they run on the same tasks and are compared.
/// Keeps its own memory per task key. Not thread-safe; the leader owns it.
class Agent {
 public:
  virtual ~Agent() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// The next arm to measure. After finished() it keeps answering recommend().
  virtual Choice act(const Task& task) = 0;
  /// Does it choose by itself where to measure? Then plan() is asked instead of act(), and no task
  /// has its default measured unless the plan says so.
  [[nodiscard]] virtual bool plans() const { return false; }
  /// What to measure next, at most `most` choices of different tasks, the most valuable first;
  /// none when nothing is worth measuring any more.
  virtual std::vector<PlannedChoice> plan(const std::vector<const Task*>& /*tasks*/,
                                          std::size_t /*most*/) {
    return {};
  }
  /// One measurement; also of an arm that somebody else chose.
  virtual void learn(const Task& task, std::size_t arm, const Trial& trial) = 0;
  /// Does it ever want anything but the default measured? Where not, nobody else tries settings
  /// on its behalf.
  [[nodiscard]] virtual bool explores() const { return true; }
  /// Nothing more to learn: the key is frozen.
  [[nodiscard]] virtual bool finished(const Task& task) const = 0;
  /// The setting to use, from all that is known; the default when nothing better is known.
  [[nodiscard]] virtual std::size_t recommend(const Task& task) const = 0;
  /// The surroundings have changed: what was learnt of this key may be wrong.
  virtual void reopen(const RegimeKey& key) = 0;
};

struct AgentOptions {
  std::uint64_t seed = 1;
  int repeats = 1;          ///< times that exhaustive measures each arm
  int max_evaluations = 0;  ///< per task; 0 = the agent decides
  double stop_gain = 0.02;  ///< expected relative gain below which a task is finished
  std::string policy_path;  ///< of "ppo"; "" = the one that comes with the program
  /// Bandit and PPO: an arm replaces the default when it is faster with at least this probability.
  double safety = 0.8;
};

/// All, for replays: also those that others are compared with ("default", "prior",
/// "ppo-untrained").
std::vector<std::string> agent_names();
/// Those that a user has a reason to search with.
std::vector<std::string> searching_agents();
/// Does the agent act by the policy file of AgentOptions::policy_path?
bool reads_policy(const std::string& name);
/// @throws Error(input) for an unknown name, Error(data) for a damaged policy file
std::unique_ptr<Agent> make_agent(const std::string& name, const AgentOptions& options);

}  // namespace dynamiccl
