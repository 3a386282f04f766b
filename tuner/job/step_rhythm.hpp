#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/vocabulary/units.hpp"

namespace dynamiccl {

/// One collective as the rhythm hears it.
struct RhythmCall {
  std::int64_t ns = 0;     ///< when it was started
  std::uint32_t kind = 0;  ///< equal numbers: equal communicator, collective and bytes
};

/// One repetition that was found.
struct RhythmStep {
  std::size_t first = 0;  ///< index of its first call
  Micros time;  ///< to the first call of the next one; 0 where that does not follow at once
};

/// The step of a job, found from its calls alone: the shortest sequence of calls that the job
/// repeats. Where every micro-batch communicates alike, it is the micro-batch.
struct Rhythm {
  /// Kinds of one step, from the call after the step's longest pause on; empty: no rhythm.
  std::vector<std::uint32_t> pattern;
  std::vector<RhythmStep> steps;
  Micros step;              ///< typical time
  double spread = 0;        ///< robust standard deviation of the steps' times over `step`
  std::size_t timed = 0;    ///< steps with a time
  std::size_t outside = 0;  ///< calls that belong to no step: start-up, evaluation, checkpoints
  /// All calls of the pattern are alike, and pauses alone tell where a step begins.
  bool by_pauses = false;
  std::string reason;  ///< why there is none
  [[nodiscard]] bool found() const { return !pattern.empty(); }
};

struct RhythmOptions {
  std::size_t longest = 4096;   ///< calls in a step at most
  std::size_t least_steps = 4;  ///< repetitions without which there is no rhythm
};

/// @param calls of one process, oldest first
Rhythm find_rhythm(std::span<const RhythmCall> calls, const RhythmOptions& options = {});

/// The steps of a pattern that is known already; cheap, for a job that is watched.
Rhythm follow_rhythm(std::span<const RhythmCall> calls, const std::vector<std::uint32_t>& pattern);

}  // namespace dynamiccl
