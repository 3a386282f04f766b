#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "tuner/agents/agent.hpp"
#include "tuner/guards/guards.hpp"
#include "tuner/reward/reward.hpp"

namespace dynamiccl {

/// A measurement that a search asks for: an arm of one of its tasks.
struct Ask {
  std::size_t task = 0;
  std::size_t arm = 0;
  auto operator<=>(const Ask&) const = default;
};

/// What a measurement brought.
struct Measured {
  Trial trial;
  std::string reason;                  ///< why the trial is not ok
  bool missed = false;                 ///< it worked, but not up to what it is to reach: no fault
  std::string applied;                 ///< what ran, read back; "" = not known
  std::int64_t calls = 0;              ///< calls under the setting
  std::string regime_id;               ///< detected; "" = as before
  nlohmann::json regime;               ///< Regime::json
  std::optional<std::int64_t> origin;  ///< caller's own number of the launch
};

/// Measures; one answer per ask, in order. An empty answer ends the search (interrupted).
using Evaluate = std::function<std::vector<Measured>(const std::vector<Ask>&)>;

struct SearchTask {
  Task task;
  Bytes size;
  std::optional<Micros> gloo_floor;  ///< Gloo's time for the same task, where it is known
  /// Nodes of the group; what is known of the surroundings is filled in from the first launch.
  int nodes = 1;
};

struct SearchOptions {
  int max_evaluations = 0;    ///< of all tasks together; 0 = the agent decides
  std::size_t in_flight = 0;  ///< settings that a plan may name for one round; 0 = one of each task
  GuardLimits limits;
  RewardWeights weights;
};

/// One choice as the decision log keeps it.
struct SearchStep {
  std::size_t task = 0;
  int step = 0;                  ///< of the task, from 0
  const char* kind = "explore";  ///< "reference", "explore", "exploit" or "final"
  Choice choice;
  GuardVerdict guard = GuardVerdict::pass;
  State state;
  Measured measured;
  std::optional<Micros> reference;
  std::optional<RewardTerms> reward;
};

/// What a search came to, per task.
struct SearchOutcome {
  std::size_t arm = 0;  ///< to be used; the default when nothing better is known
  int evaluations = 0;
  std::optional<Micros> default_time;
  std::optional<Micros> best_time;  ///< of `arm`, as measured by the search
  GuardVerdict guard = GuardVerdict::pass;
  std::size_t tried = 0;   ///< settings that were measured, the default among them
  std::size_t missed = 0;  ///< of them: those that never reached what they are to reach
  /// The fastest measured setting other than the default; 0 = none worked.
  std::size_t challenger = 0;
  std::optional<Micros> challenger_time;
};

/// Lets an agent search all tasks. An agent that plans says in each round what of which tasks is
/// measured, at most `in_flight` settings of different tasks; a task without a choice is left
/// alone, and what is known of others may decide one that was never measured. For all other agents
/// every task's default is measured first, as the reference of its reward; it counts as an
/// evaluation. Then each round asks for one arm of every open task, until the budget is spent: it
/// is the same for all agents, and goes to all tasks. A task's first measurement tells its regime.
/// @param on_step called for every choice with its result, in order
/// @returns one outcome per task
std::vector<SearchOutcome> search(Agent& agent, std::vector<SearchTask>& tasks,
                                  const Evaluate& evaluate, const SearchOptions& options,
                                  const std::function<void(const SearchStep&)>& on_step);

}  // namespace dynamiccl
