#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace dynamiccl {

/// What a candidate's step is expected to take, microseconds.
struct Expectation {
  Expectation(double least, double most) : least_us(least), most_us(most) {}
  Expectation(double us) : Expectation(us, us) {}  // NOLINT(google-explicit-constructor)
  double least_us;
  double most_us;
  [[nodiscard]] double middle_us() const { return (least_us + most_us) / 2; }
};

/// What a choice by trial tried.
struct TrialRun {
  std::size_t candidate = 0;
  std::vector<double> step_us;  ///< of all its rounds
};

struct TrialResult {
  std::size_t chosen = 0;
  std::vector<TrialRun> tried;  ///< empty where nothing was worth a trial or could be afforded
};

/// Chooses among candidates whose expected steps are too close to tell apart, by steps of each:
/// sequential halving (Karnin, Koren, Somekh, ICML 2013). In each round all that are left train in
/// turn, the fewer the longer, and the better half by the median of their steps so far goes on,
/// until one is left. A candidate's first step in a round counts for nothing: it finds its buffers
/// cold and no message under way.
/// @param expected of each candidate; those that are at least far above what another one takes at
///                 most are left out, but not the second
/// @param allowed_us  what the trial may take, as far as is expected: fewer candidates then
/// @param train       trains so many steps by a candidate; their times, the same on every rank
TrialResult choose_by_trial(
    const std::vector<Expectation>& expected, double allowed_us,
    const std::function<std::vector<double>(std::size_t candidate, int steps)>& train);

}  // namespace dynamiccl
