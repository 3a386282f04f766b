#pragma once

#include <cstddef>
#include <vector>

#include "core/vocabulary/units.hpp"

namespace dynamiccl {

/// Times of a size's calls under one setting: a sample per burst of calls, as a machine's pace is
/// nearly the same for all calls of a burst.
class CallSamples {
 public:
  /// @param most samples that are kept: the newest
  explicit CallSamples(std::size_t most = 8) : most_(most) {}
  /// @param mean of `calls` calls, positive
  void add(Micros mean, std::size_t calls);
  void clear();
  [[nodiscard]] std::size_t size() const { return log_us_.size(); }
  [[nodiscard]] std::size_t calls() const { return calls_; }  ///< in all
  [[nodiscard]] double level() const;                         ///< median of ln(us)
  /// Of the newest samples alone.
  [[nodiscard]] double newest(std::size_t samples) const;
  /// Robust standard deviation of ln(us) between neighbouring samples; 0 where fewer than three are
  /// known.
  [[nodiscard]] double noise() const;

 private:
  std::size_t most_;
  std::size_t calls_ = 0;
  std::vector<double> log_us_{};
};

struct TrialRules {
  double worse_z = 2.5;      ///< standard errors by which a setting must be slower to be given up
  double better_z = 1.64;    ///< and faster, to take the place of the one in force
  double futile_z = 0.5;     ///< it is not even faster when it is better by so many than it looks
  double least_gain = 0.02;  ///< of ln(us)
  std::size_t most_samples = 6;
  std::size_t most_calls = 20;  ///< and two samples
};

enum class TrialVerdict { open, worse, no_better, better };

/// A sequential test: is a setting's time surely another one than that of the setting in force? A
/// setting that doubles the time is given up after a call or two; where times are steady few calls
/// decide, where they are noisy more.
/// @param noise standard deviation of ln(us) of one sample
TrialVerdict judge_calls(const CallSamples& trial, const CallSamples& reference, double noise,
                         const TrialRules& rules);

}  // namespace dynamiccl
