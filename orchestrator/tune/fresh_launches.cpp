#include "orchestrator/tune/fresh_launches.hpp"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "core/statistics/fast_random.hpp"

namespace dynamiccl {
namespace {

/// Arms to measure of every task but its default: what searches chose, and the oracle's if asked.
std::vector<Ask> all_choices(const std::vector<Oracle>& oracles,
                             const std::vector<ReplayScore>& scores, bool with_oracle) {
  std::vector<Ask> asks;
  for (std::size_t t = 0; t < oracles.size(); ++t) {
    std::set<std::size_t> arms;
    if (with_oracle) arms.insert(oracles[t].arm);
    for (const ReplayScore& score : scores)
      for (const auto& choices : score.choices) arms.insert(choices[t]);
    arms.erase(0);
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

/// One round of what is scored. @returns false when interrupted
bool score_once(LaunchEvaluator& evaluator, const std::vector<std::size_t>& place,
                const std::vector<Ask>& choices, FastRandom& random,
                std::vector<FreshTimes>& times) {
  std::vector<Ask> defaults;
  for (std::size_t t = 0; t < times.size(); ++t) defaults.push_back({t, 0});
  std::vector<Ask> all = choices;
  all.insert(all.end(), defaults.begin(), defaults.end());
  const auto asks = shuffled(all, random);
  const bool again_first = random.below(2) == 0;
  std::vector<Measured> again;
  if (again_first) again = evaluator.measure(placed(defaults, place));
  const auto measured = evaluator.measure(placed(asks, place));
  if (!again_first) again = evaluator.measure(placed(defaults, place));
  if (evaluator.interrupted_by() != 0) return false;
  for (std::size_t i = 0; i < asks.size(); ++i)
    times[asks[i].task].arm_us[asks[i].arm].push_back(time_of(measured[i]));
  for (std::size_t t = 0; t < defaults.size(); ++t) times[t].again_us.push_back(time_of(again[t]));
  return true;
}

}  // namespace

std::map<Ask, std::vector<PairedTime>> confirm_choices(LaunchEvaluator& evaluator,
                                                       const std::vector<Ask>& choices,
                                                       const ConfirmationRule& rule) {
  Confirmations confirming(choices, rule);
  FastRandom random(1);
  for (;;) {
    const auto asks = shuffled(confirming.round(), random);
    if (asks.empty()) break;
    const auto measured = evaluator.measure(asks);
    if (measured.empty()) break;
    confirming.add(asks, measured);
  }
  return confirming.times();
}

std::vector<FreshTimes> measure_choices(LaunchEvaluator& evaluator,
                                        const std::vector<std::size_t>& place,
                                        const std::vector<Oracle>& oracles,
                                        const std::vector<ReplayScore>& scores,
                                        const ConfirmationRule& rule, const Console& console) {
  const auto choices = all_choices(oracles, scores, false);
  const auto scored = all_choices(oracles, scores, true);
  console.note(fmt::format(
      "measuring {} choices of {} cells and their defaults on {} fresh launches, open "
      "ones on up to {}",
      scored.size(), oracles.size(), 2 * rule.launches, rule.launches * (1 + rule.looks)));
  std::vector<FreshTimes> times(oracles.size());
  Confirmations confirming(choices, rule);
  FastRandom random(1);
  for (int round = 0;; ++round) {
    const auto asks = shuffled(confirming.round(), random);
    const bool scoring = round < rule.launches;
    if (asks.empty() && !scoring) break;
    if (!asks.empty()) {
      const auto measured = evaluator.measure(placed(asks, place));
      if (measured.empty()) break;
      confirming.add(asks, measured);
    }
    if (scoring && !score_once(evaluator, place, scored, random, times)) break;
  }
  for (const auto& [choice, rounds] : confirming.times())
    times[choice.task].confirming[choice.arm] = rounds;
  return times;
}

}  // namespace dynamiccl
