#include "train/plan/trial.hpp"

#include <algorithm>
#include <numeric>

#include "core/statistics/statistics.hpp"

namespace dynamiccl {
namespace {

/// Expectations are to be within 15 %, so that of two candidates one may be ahead by twice that.
constexpr double kWorthTrying = 1.3;
constexpr std::size_t kAlwaysTried = 2;  // expectations may be off by more

constexpr std::size_t kFirstSteps = 2;  // in the first round
constexpr std::size_t kLastSteps = 4;   // of the last two

std::size_t half_of(std::size_t count) { return (count + 1) / 2; }

/// Steps of each candidate in a round with `left` of them; every round takes about as long.
int steps_in_round(std::size_t candidates, std::size_t left) {
  const std::size_t steps = kFirstSteps * candidates / left;
  return 1 + static_cast<int>(left > 2 ? steps : std::max(steps, kLastSteps));
}

int steps_of(std::size_t candidates) {
  int steps = 0;
  for (std::size_t left = candidates; left > 1; left = half_of(left))
    steps += static_cast<int>(left) * steps_in_round(candidates, left);
  return steps;
}

/// Best expected first, as many as can be afforded.
std::vector<std::size_t> worth_trying(const std::vector<Expectation>& expected, double allowed_us) {
  std::vector<std::size_t> order(expected.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (order.empty()) return order;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return expected[a].middle_us() < expected[b].middle_us();
  });
  const auto most_us = [&](std::size_t candidate) { return expected[candidate].most_us; };
  double surely_us = most_us(order.front());
  for (const std::size_t candidate : order) surely_us = std::min(surely_us, most_us(candidate));
  const auto first_dropped =
      std::stable_partition(order.begin(), order.end(), [&](std::size_t candidate) {
        return expected[candidate].least_us <= surely_us * kWorthTrying;
      });
  const auto kept = static_cast<std::size_t>(first_dropped - order.begin());
  order.resize(std::min(order.size(), std::max(kept, kAlwaysTried)));
  // As the slowest of them, so that it may end sooner but not later.
  const auto longest_us = [&] {
    double us = 0;
    for (const std::size_t candidate : order) us = std::max(us, most_us(candidate));
    return us;
  };
  while (order.size() > 1 && steps_of(order.size()) * longest_us() > allowed_us) order.pop_back();
  return order;
}

}  // namespace

TrialResult choose_by_trial(
    const std::vector<Expectation>& expected, double allowed_us,
    const std::function<std::vector<double>(std::size_t candidate, int steps)>& train) {
  auto left = worth_trying(expected, allowed_us);
  TrialResult result;
  if (left.empty()) return result;
  if (left.size() > 1)
    for (const std::size_t candidate : left) result.tried.push_back({candidate, {}});
  std::vector<TrialRun*> runs;
  for (TrialRun& run : result.tried) runs.push_back(&run);
  while (runs.size() > 1) {
    for (TrialRun* run : runs) {
      const auto times = train(run->candidate, steps_in_round(left.size(), runs.size()));
      run->step_us.insert(run->step_us.end(), times.begin() + 1, times.end());
    }
    std::stable_sort(runs.begin(), runs.end(), [](const TrialRun* a, const TrialRun* b) {
      return median(a->step_us) < median(b->step_us);
    });
    runs.resize(half_of(runs.size()));
  }
  result.chosen = runs.empty() ? left.front() : runs.front()->candidate;
  return result;
}

}  // namespace dynamiccl
