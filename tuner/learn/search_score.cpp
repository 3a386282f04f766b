#include "tuner/learn/search_score.hpp"

#include <cmath>

#include "core/statistics/statistics.hpp"
#include "tuner/agents/task_loop.hpp"
#include "tuner/learn/rollout.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kManyArms = 24;
constexpr double kWorth = 1.1;
constexpr int kSizes = 3;

/// Share of the default's time that an arm saves.
double saved(const SimTask& task, std::size_t arm) {
  return 1 - std::exp(static_cast<double>(task.log_us[arm] - task.log_us[0]));
}

Trial measure(const SimFamily& family, const SimTask& task, std::size_t arm, FastRandom& noise) {
  double log_us = static_cast<double>(task.log_us[arm]) + family.spread.noise * noise.normal();
  if (noise.chance(family.spread.outlier_rate)) log_us += noise.uniform(0, std::log(3.0));
  return {true, Micros{std::exp(log_us)}};
}

/// One task's search.
struct Searched {
  int evaluations = 0;
  int reached = 0;  ///< 0 = never
  double saved = 0;
};

Searched search(Agent& agent, const SimFamily& family, const SimTask& sim, double possible,
                FastRandom& noise) {
  const Task task = task_of(sim);
  TaskLoop loop(agent, static_cast<int>(sim.log_us.size()));
  Searched result;
  run_loop(
      loop, task, [&](std::size_t arm) { return measure(family, sim, arm, noise); },
      [&] {
        if (result.reached == 0 && saved(sim, loop.recommend(task)) >= 0.95 * possible)
          result.reached = loop.steps();
      });
  result.evaluations = loop.steps();
  result.saved = saved(sim, loop.recommend(task));
  return result;
}

}  // namespace

SearchScore search_in_simulator(const AgentMaker& make, const SimCatalog& catalog,
                                CurriculumStage stage, int families, std::uint64_t seed) {
  FastRandom worlds(seed);
  FastRandom noise(seed + 1);
  SearchScore score;
  std::vector<double> to_95;
  double all_saved = 0;
  double all_possible = 0;
  for (int f = 0; f < families; ++f) {
    const SimFamily family = sample_family(catalog, stage, {}, worlds);
    const std::unique_ptr<Agent> agent = make(worlds());
    for (int s = 0; s < kSizes; ++s) {
      SimTask task;
      make_task(family, 10 + static_cast<double>(worlds.below(17)), task);
      const double best = static_cast<double>(task.log_us[0] - task.best_log_us);
      const double possible = 1 - std::exp(-best);
      const Searched one = search(*agent, family, task, possible, noise);
      if (task.log_us.size() < kManyArms || best < std::log(kWorth)) continue;
      ++score.tasks;
      score.evaluations += one.evaluations;
      score.reached_95 += one.reached > 0 ? 1 : 0;
      to_95.push_back(one.reached > 0 ? one.reached : static_cast<double>(task.log_us.size()));
      all_saved += one.saved;
      all_possible += possible;
    }
  }
  if (score.tasks == 0) return score;
  score.evaluations_to_95 = median(to_95);
  score.reached_95 /= score.tasks;
  score.evaluations /= score.tasks;
  score.gain_share = all_saved / all_possible;
  return score;
}

}  // namespace dynamiccl
