#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tuner/search/replay.hpp"

namespace dynamiccl {

/// A figure over seeds with its interval.
struct SeedFigure {
  double value = 0;
  double low = 0;
  double high = 0;
};

/// One agent's row. Searches are pooled over all replays: a seed's figure is over all their tasks.
struct ComparedAgent {
  std::string agent;
  /// The choices' time over the default's, geometric mean over the tasks that count and seeds.
  SeedFigure time;
  SeedFigure to_95;  ///< evaluations of a task, median over tasks; infinite where half never do
  double reached_95 = 0;  ///< share of (task, seed)
  SeedFigure slower;      ///< choices per seed
  double evaluations = 0;
  SeedFigure behind;     ///< its time over that of the agent with the lowest, seed by seed
  bool as_good = false;  ///< `behind` reaches 1: seeds do not tell them apart
};

struct AgentComparison {
  int tasks = 0;  ///< that count
  int seeds = 0;
  double oracle_time = 1;           ///< as ComparedAgent::time
  std::vector<ComparedAgent> rows;  ///< in the order of the scores
  /// Of those that the seeds do not tell from the one with the lowest time, the one with the fewest
  /// evaluations to 95 %; of these the one with the fewest slower choices. Empty without tasks.
  std::string best;
};

/// @param parts scores of the same agents and seeds, one list per replay
/// @param candidates agents that may be best; the others are shown beside them
AgentComparison compare_agents(const std::vector<std::vector<ReplayScore>>& parts,
                               const std::vector<std::string>& candidates);

/// One agent against another, seed by seed, over all replays.
struct AgentPair {
  SeedFigure time;  ///< its choices' time over the other's
  /// Its evaluations to 95 % over the other's, medians over tasks; nullopt where half of the tasks
  /// never get there with some seed of either.
  std::optional<SeedFigure> to_95;
};
/// @throws Error(bug) for an agent that has no score
AgentPair compare_pair(const std::vector<std::vector<ReplayScore>>& parts, const std::string& agent,
                       const std::string& other);

/// What seeds say of a figure that ought to be at most a bound.
enum class BarAnswer { reached, missed, open };
BarAnswer answer_of(const SeedFigure& figure, double at_most);

/// Agents that differ by their network alone, as one sample of networks: their choices' time over
/// the other's. The interval is over networks, each with all its seeds.
SeedFigure compare_group(const std::vector<std::vector<ReplayScore>>& parts,
                         const std::vector<std::string>& agents, const std::string& other);
/// The first group's time over the second's; Welch's interval over networks.
SeedFigure compare_groups(const std::vector<std::vector<ReplayScore>>& parts,
                          const std::vector<std::string>& agents,
                          const std::vector<std::string>& others);

/// The comparison as a Markdown table.
std::string comparison_markdown(const AgentComparison& comparison);

}  // namespace dynamiccl
