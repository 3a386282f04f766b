#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "core/vocabulary/json.hpp"
#include "train/step/step_exchange.hpp"

namespace dynamiccl {

/// What the calls of one measured step were like.
struct CallsOfStep {
  std::size_t calls = 0;
  double calls_us = 0;  ///< in all of them
  /// Between the starts of two calls in a row, the last one of the step before among them; nullopt
  /// where there is none.
  std::optional<double> median_gap_us;
  std::optional<double> largest_gap_us;
  /// (s - m) / (s + m) of the gaps' deviation s and mean m: -1 as a clock ticks, about 0 by chance,
  /// towards 1 in bursts; nullopt for fewer than two gaps.
  std::optional<double> burstiness;
};

/// When a worker's calls into the library begin and what they take, of every measured step: what a
/// step's sum hides, as when settings change from step to step.
class CallTimes {
 public:
  /// Of single calls so many are kept, of all steps the sums.
  static constexpr std::size_t kMostCalls = 10'000;
  /// On GPUs, where an event goes before and after each call that is seen, of so many steps one is
  /// looked at: the median step is another.
  static constexpr int kStepsOfGpu = 8;

  /// One measured step after the other; what crosses the barrier is with the step in which it
  /// ended. Steps without calls count.
  /// @param start_us of the step, by the clock of the spans
  /// @param follows it comes right after the one that was added before
  void add(double start_us, const std::vector<Span>& spans, bool follows = true);
  /// Calls of steps that nobody kept.
  void leave_out(std::size_t calls) { left_out_ += calls; }
  [[nodiscard]] const std::vector<CallsOfStep>& steps() const { return steps_; }
  /// {"burstiness": of all gaps, "kinds": [...], "each": [[step, kind, piece, start, us], ...],
  /// "left_out": n, "steps":
  /// [[calls, us, median gap, largest gap, burstiness], ...]}; starts count from their step's. A
  /// call of another size than its piece has its bytes behind.
  /// Nothing where no step had a call.
  [[nodiscard]] nlohmann::json as_json() const;

 private:
  struct Call {
    std::size_t step;
    std::size_t kind;
    std::size_t piece;
    double start_us;
    double us;
    std::size_t bytes;  ///< as the span's
  };
  std::size_t kind_of(const char* what);

  std::vector<const char*> kinds_;
  std::vector<Call> calls_;
  std::vector<CallsOfStep> steps_;
  std::vector<double> gaps_;
  std::size_t left_out_ = 0;
  std::optional<double> last_start_us_;  ///< of the step before
};

}  // namespace dynamiccl
