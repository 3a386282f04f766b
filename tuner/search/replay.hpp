#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tuner/search/search.hpp"

namespace dynamiccl {

/// A task with what a sweep measured of every arm.
struct SampledTask {
  SearchTask search;
  bool held_out = false;
  std::string regime_id;
  nlohmann::json regime;
  /// Microseconds by arm and launch; launches in the order of their blocks. An arm without any is
  /// one that failed.
  std::vector<std::vector<double>> arm_us;
  /// The launches' numbers, in the same shape; empty = not known.
  std::vector<std::vector<std::int64_t>> arm_launch;
};

struct ReplayOptions {
  std::vector<std::string> agents;
  int seeds = 10;
  AgentOptions agent;  ///< its seed is replaced
  /// Of all tasks together, the same for every agent; nullopt = the agent decides. With 0 nothing
  /// is measured, and what an agent says before is scored.
  std::optional<int> evaluations;
  /// Makes the agents; where it makes none (or is none), make_agent() does.
  std::function<std::unique_ptr<Agent>(const std::string& name, const AgentOptions&)> make;
  double worth = 1.1;  ///< speed-up from which on a task counts for the gain
  /// In how many parts launches are split: 3, or 2 where fresh launches will score (see replay()).
  std::size_t parts = 3;
  GuardLimits limits;
  /// Also score kBestFixed: the one setting, of those that all tasks have, that is fastest over all
  /// of them by the launches that the oracle chooses on. It needs every measurement, and no task's
  /// own.
  bool best_fixed = false;
};
inline constexpr const char* kBestFixed = "best-fixed";

/// How an agent did with one seed.
struct SeedScore {
  int evaluations = 0;
  /// ln(default's time / choice's), summed over the tasks that count. The logarithm, so that one
  /// spoiled launch does not outweigh all others.
  double log_faster = 0;
  int slower = 0;  ///< choices slower than the default beyond its band, of all tasks
  /// By task that counts: evaluations of the task until the recommendation saves 95 % of what the
  /// oracle saves; infinite = never.
  std::vector<double> to_95;
};

/// How an agent did over all seeds.
struct ReplayScore {
  std::string agent;
  int tasks = 0;  ///< in which the oracle is at least `worth` times faster
  int seeds = 0;
  double evaluations = 0;  ///< mean per seed, over all tasks
  double share_of_exhaustive = 0;
  double gain_share = 0;         ///< time saved over the oracle's, mean over seeds
  double gain_share_lowest = 0;  ///< of the seeds
  /// The same over the held-out tasks alone; 0 tasks = not known.
  int held_out_tasks = 0;
  double held_out_gain_share = 0;
  /// Median over tasks (with at least 24 arms, or all where none has) and seeds of the evaluations
  /// of the task after which the recommendation saves 95 % of what the oracle saves; infinite where
  /// half of them never get there.
  double evaluations_to_95 = 0;
  double reached_95 = 0;   ///< share of (task, seed) that get there
  int slower = 0;          ///< (task, seed) whose choice is slower than the default beyond its band
  double worst_ratio = 1;  ///< largest time of a choice over its default's
  std::vector<std::vector<std::size_t>> choices;  ///< arms, by seed and task
  std::vector<SeedScore> by_seed;
  double oracle_log_faster = 0;  ///< as SeedScore::log_faster, by the oracle's choices
};

/// One evaluation of a replayed search, for regret curves.
struct ReplayStep {
  std::string agent;
  int seed = 0;
  std::size_t task = 0;                ///< index into the replayed tasks
  const SearchTask* search = nullptr;  ///< as the agent saw it
  const SearchStep* step = nullptr;
};

/// Lets agents search stored samples instead of launches. Launches are split in three by block, so
/// that nothing is chosen and judged on the same noise: the first third is what searches draw from
/// and the oracle chooses on, the second says which tasks are worth it, the third scores. A search
/// is shown another launch each time it measures an arm, and the same again only after all were; in
/// one round it is shown the same launch of all arms, as far as that goes. Where choices are
/// measured again (confirmation.hpp), halves do: the second says what is worth it, and its scores
/// are provisional. Searches run side by side on all processors; seeds make each what it is.
/// @param on_step  called one at a time, in order for each agent and seed, theirs interleaved
/// @returns by agent, in their order, then kBestFixed where it is asked for
/// @throws Error(input) for a task with fewer launches of its default than parts
std::vector<ReplayScore> replay(const std::vector<SampledTask>& tasks, const ReplayOptions& options,
                                const std::function<void(const ReplayStep&)>& on_step);

/// What is best of a task, chosen on the first part of the launches.
struct Oracle {
  std::size_t arm = 0;
  bool counts = false;  ///< at least `worth` times faster on the second part
};
/// By task. @throws as replay()
std::vector<Oracle> oracles(const std::vector<SampledTask>& tasks, const ReplayOptions& options);

}  // namespace dynamiccl
