#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tuner/agents/policy_agent.hpp"
#include "tuner/learn/world.hpp"

namespace dynamiccl {

/// The decisions of one search, in order; the recurrent state begins at zero.
using Episode = std::vector<PolicyStep>;

/// What a policy's searches leave for its training.
struct Rollout {
  std::vector<Episode> episodes;
  double final_regret = 0;  ///< mean over the searches
};

/// Budgets, in looks a cell, that agents are trained and compared at.
inline constexpr std::array kBudgets{1, 2, 4};

/// Lets a policy search simulated places as PolicyAgent does in `tune`: search() itself, one choice
/// at a time, with a budget of kBudgets. The reward of a choice is by how much the regret of what
/// the agent recommends, ln(time) over the best, mean over the place's cells, fell by its result:
/// all together what was gained when the budget was spent.
/// @param threads that search places side by side; what comes out is the same with any number
Rollout collect(const Policy& policy, std::span<const SimPlace> places, std::uint64_t seed,
                unsigned threads = 1);

using AgentMaker = std::function<std::unique_ptr<Agent>(std::uint64_t seed)>;

/// How an agent's searches of places end, a fresh agent for each.
struct SimScore {
  std::array<double, kBudgets.size()> regret{};  ///< by budget: mean ln(time) over the best's
  double default_regret = 0;                     ///< of choosing nothing
  [[nodiscard]] double mean_regret() const;      ///< over the budgets
};
SimScore score_in_simulator(const AgentMaker& make, std::span<const SimPlace> places,
                            std::uint64_t seed, unsigned threads = 1);

/// Does a policy act by its context? Its likeliest first setting of each cell, where nothing was
/// measured, against that under the job and the surroundings of another place.
struct ContextEffect {
  double changed = 0;  ///< share of cells in which it is another setting
  double worth = 0;    ///< mean ln(time): the other context's setting over that of the own
};
ContextEffect context_effect(const Policy& policy, std::span<const SimPlace> places,
                             unsigned threads = 1);

/// The same of one feature that a policy sees: its likeliest first setting of each cell against
/// that where the feature is not known.
struct FeatureEffect {
  std::string_view feature;
  double known = 0;    ///< share of cells that know it
  double changed = 0;  ///< share of cells in which it is another setting without
  double worth = 0;    ///< mean ln(time): the setting without over that with it
  double error = 0;    ///< standard error of that, over places
};
std::vector<FeatureEffect> feature_effects(const Policy& policy, std::span<const SimPlace> places,
                                           unsigned threads = 1);

}  // namespace dynamiccl
