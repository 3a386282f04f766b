#include "tuner/job/step_rhythm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "core/statistics/statistics.hpp"

namespace dynamiccl {
namespace {

/// What one interruption of the rhythm costs, in calls (see period_of()).
constexpr std::size_t kBreak = 16;
constexpr double kMadToDeviation = 1.4826;

/// The period whose pattern and exceptions together are shortest to write down (minimum
/// description length): a layer's sub-rhythm breaks in every step, an evaluation seldom.
/// @returns 0 where writing all calls down is no longer
std::size_t period_of(std::span<const RhythmCall> calls, std::size_t longest) {
  std::size_t best = 0;
  std::size_t least = calls.size() * 3 / 4;
  for (std::size_t p = 1; p <= longest && p < least; ++p) {
    std::size_t cost = p;
    bool broken = false;
    for (std::size_t i = 0; i + p < calls.size() && cost < least; ++i) {
      const bool differs = calls[i].kind != calls[i + p].kind;
      if (differs) cost += broken ? 1 : 1 + kBreak;
      broken = differs;
    }
    if (cost < least) {
      least = cost;
      best = p;
    }
  }
  return best;
}

double robust_spread(const std::vector<double>& values) {
  const double middle = median(values);
  return middle > 0 ? kMadToDeviation * median_absolute_deviation(values) / middle : 0;
}

/// A repeated pattern, seen as late as possible: jobs settle after their first steps.
/// @returns index of its first call, or calls.size()
std::size_t last_repetition(std::span<const RhythmCall> calls, std::size_t period) {
  std::size_t alike = 0;
  for (std::size_t i = calls.size() - period; i-- > 0;) {
    alike = calls[i].kind == calls[i + period].kind ? alike + 1 : 0;
    if (alike == period) return i;
  }
  return calls.size();
}

std::vector<std::uint32_t> kinds_from(std::span<const RhythmCall> calls, std::size_t first,
                                      std::size_t period) {
  std::vector<std::uint32_t> kinds;
  for (std::size_t i = first; i < first + period; ++i) kinds.push_back(calls[i].kind);
  return kinds;
}

bool matches(std::span<const RhythmCall> calls, std::size_t at,
             const std::vector<std::uint32_t>& pattern) {
  if (at + pattern.size() > calls.size()) return false;
  for (std::size_t k = 0; k < pattern.size(); ++k)
    if (calls[at + k].kind != pattern[k]) return false;
  return true;
}

/// Where in the pattern the longest pause lies before a call: there a step begins.
std::size_t longest_pause(std::span<const RhythmCall> calls,
                          const std::vector<std::uint32_t>& pattern) {
  std::vector<std::vector<double>> pauses(pattern.size());
  for (std::size_t i = 0; i < calls.size();) {
    if (!matches(calls, i, pattern)) {
      ++i;
      continue;
    }
    for (std::size_t k = 0; k < pattern.size() && i + k > 0; ++k)
      pauses[k].push_back(static_cast<double>(calls[i + k].ns - calls[i + k - 1].ns));
    i += pattern.size();
  }
  std::size_t best = 0;
  double longest = -1;
  for (std::size_t k = 0; k < pauses.size(); ++k) {
    const double pause = pauses[k].empty() ? 0 : median(pauses[k]);
    if (pause > longest) {
      longest = pause;
      best = k;
    }
  }
  return best;
}

/// Patterns of calls that are all alike say nothing about steps; their pauses may.
/// @returns how many repetitions make a regular step; 1 where no number does
std::size_t repetitions_per_step(std::span<const RhythmCall> calls, std::size_t period,
                                 std::size_t longest) {
  const auto spread_of = [&](std::size_t k) {
    std::vector<double> times;
    for (std::size_t i = 0; i + k * period < calls.size(); i += period)
      times.push_back(static_cast<double>(calls[i + k * period].ns - calls[i].ns));
    return times.size() < 8 ? std::numeric_limits<double>::infinity()
                            : standard_deviation(times) / std::max(mean(times), 1.0);
  };
  constexpr double kIrregular = 0.5;
  constexpr double kBetterThanChance = 0.3;
  const double single = spread_of(1);
  if (!(single > kIrregular)) return 1;
  for (std::size_t k = 2; k <= std::min<std::size_t>(256, longest / period); ++k)
    if (spread_of(k) < kBetterThanChance * single / std::sqrt(static_cast<double>(k))) return k;
  return 1;
}

/// Steps may begin after a long pause only: where all calls are alike, the pattern fits anywhere.
std::size_t first_after_pause(std::span<const RhythmCall> calls, std::size_t size) {
  std::size_t best = 0;
  double most = -1;
  for (std::size_t offset = 0; offset < size; ++offset) {
    std::vector<double> pauses;
    for (std::size_t i = offset == 0 ? size : offset; i < calls.size(); i += size)
      pauses.push_back(static_cast<double>(calls[i].ns - calls[i - 1].ns));
    const double pause = pauses.empty() ? 0 : median(pauses);
    if (pause > most) {
      most = pause;
      best = offset;
    }
  }
  return best;
}

void add_steps(std::span<const RhythmCall> calls, std::size_t from, Rhythm& rhythm) {
  const std::size_t size = rhythm.pattern.size();
  rhythm.outside = std::min(from, calls.size());
  for (std::size_t i = from; i < calls.size();) {
    if (!matches(calls, i, rhythm.pattern)) {
      ++rhythm.outside;
      ++i;
      continue;
    }
    const bool follows = !rhythm.steps.empty() && rhythm.steps.back().first + size == i;
    if (follows)
      rhythm.steps.back().time =
          Micros(static_cast<double>(calls[i].ns - calls[rhythm.steps.back().first].ns) / 1e3);
    rhythm.steps.push_back({i, Micros{}});
    i += size;
  }
}

void settle_time(Rhythm& rhythm) {
  std::vector<double> times;
  for (const RhythmStep& step : rhythm.steps)
    if (step.time.count() > 0) times.push_back(step.time.count());
  rhythm.timed = times.size();
  if (times.empty()) return;
  std::sort(times.begin(), times.end());
  const double middle = median(times);
  const std::size_t cut = times.size() / 10;
  double sum = 0;
  for (std::size_t i = cut; i < times.size() - cut; ++i) sum += times[i];
  const double trimmed = sum / static_cast<double>(times.size() - 2 * cut);
  // A host that runs ahead of its GPU starts steps in bursts: then the mean is the step.
  constexpr double kBursts = 0.05;
  rhythm.step = Micros(std::abs(trimmed / middle - 1) > kBursts ? trimmed : middle);
  rhythm.spread = robust_spread(times);
}

}  // namespace

Rhythm follow_rhythm(std::span<const RhythmCall> calls, const std::vector<std::uint32_t>& pattern) {
  Rhythm rhythm;
  rhythm.pattern = pattern;
  const bool alike = std::set<std::uint32_t>(pattern.begin(), pattern.end()).size() == 1;
  rhythm.by_pauses = alike && pattern.size() > 1;
  add_steps(calls, rhythm.by_pauses ? first_after_pause(calls, pattern.size()) : 0, rhythm);
  settle_time(rhythm);
  return rhythm;
}

Rhythm find_rhythm(std::span<const RhythmCall> calls, const RhythmOptions& options) {
  Rhythm none;
  const std::size_t longest = std::min(options.longest, calls.size() / options.least_steps);
  if (longest == 0) {
    none.reason = fmt::format("{} collective calls are too few to repeat anything", calls.size());
    return none;
  }
  const std::size_t period = period_of(calls, longest);
  const std::size_t first = period == 0 ? calls.size() : last_repetition(calls, period);
  if (first == calls.size()) {
    none.reason = fmt::format(
        "the {} collective calls seen repeat no sequence {} times (longest looked for: {} calls)",
        calls.size(), options.least_steps, longest);
    return none;
  }
  std::vector<std::uint32_t> pattern = kinds_from(calls, first, period);
  if (period == 1) {
    // From where the calls are alike: what came before has pauses of its own.
    std::size_t begin = first;
    while (begin > 0 && calls[begin - 1].kind == pattern.front()) --begin;
    pattern.resize(repetitions_per_step(calls.subspan(begin), 1, longest), pattern.front());
    std::vector<RhythmCall> alike(calls.begin() + static_cast<std::ptrdiff_t>(begin), calls.end());
    Rhythm rhythm = follow_rhythm(alike, pattern);
    for (RhythmStep& step : rhythm.steps) step.first += begin;
    rhythm.outside += begin;
    if (rhythm.timed + 1 >= options.least_steps) return rhythm;
  } else {
    std::rotate(pattern.begin(),
                pattern.begin() + static_cast<std::ptrdiff_t>(longest_pause(calls, pattern)),
                pattern.end());
    Rhythm rhythm = follow_rhythm(calls, pattern);
    if (rhythm.timed + 1 >= options.least_steps) return rhythm;
  }
  none.reason = fmt::format("a sequence of {} calls repeats fewer than {} times in a row",
                            pattern.size(), options.least_steps);
  return none;
}

}  // namespace dynamiccl
