#include "orchestrator/tune/fresh_launches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tuner/simulator/fast_random.hpp"

namespace dynamiccl {
namespace {

std::vector<Ask> all_choices(const std::vector<Oracle>& oracles,
                             const std::vector<ReplayScore>& scores) {
  std::vector<Ask> asks;
  for (std::size_t t = 0; t < oracles.size(); ++t) {
    std::set<std::size_t> arms{0, oracles[t].arm};
    for (const ReplayScore& score : scores)
      for (const auto& choices : score.choices) arms.insert(choices[t]);
    for (const std::size_t arm : arms) asks.push_back({t, arm});
  }
  return asks;
}

/// The same of the evaluator's tasks.
std::vector<Ask> placed(std::vector<Ask> asks, const std::vector<std::size_t>& place) {
  for (Ask& ask : asks) ask.task = place[ask.task];
  return asks;
}

std::vector<Ask> shuffled(std::vector<Ask> asks, FastRandom& random) {
  for (std::size_t i = asks.size(); i > 1; --i) std::swap(asks[i - 1], asks[random.below(i)]);
  return asks;
}

double time_of(const Measured& measured) {
  return measured.trial.ok ? measured.trial.time.count() : NAN;
}

}  // namespace

std::vector<FreshTimes> measure_choices(LaunchEvaluator& evaluator,
                                        const std::vector<std::size_t>& place,
                                        const std::vector<Oracle>& oracles,
                                        const std::vector<ReplayScore>& scores, int rounds,
                                        const Console& console) {
  const std::vector<Ask> choices = all_choices(oracles, scores);
  std::vector<Ask> defaults;
  for (std::size_t t = 0; t < oracles.size(); ++t) defaults.push_back({t, 0});
  console.note(
      fmt::format("measuring {} choices of {} cells and their defaults on {} fresh launches",
                  choices.size() - defaults.size(), defaults.size(), rounds));
  std::vector<FreshTimes> times(oracles.size());
  FastRandom random(1);
  for (int round = 0; round < rounds; ++round) {
    const auto asks = shuffled(choices, random);
    const bool again_first = random.below(2) == 0;
    std::vector<Measured> again;
    if (again_first) again = evaluator.measure(placed(defaults, place));
    const auto measured = evaluator.measure(placed(asks, place));
    if (!again_first) again = evaluator.measure(placed(defaults, place));
    if (evaluator.interrupted_by() != 0) break;
    for (std::size_t i = 0; i < asks.size(); ++i)
      times[asks[i].task].arm_us[asks[i].arm].push_back(time_of(measured[i]));
    for (std::size_t t = 0; t < defaults.size(); ++t)
      times[t].again_us.push_back(time_of(again[t]));
  }
  return times;
}

}  // namespace dynamiccl
