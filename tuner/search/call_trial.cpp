#include "tuner/search/call_trial.hpp"

#include <algorithm>
#include <cmath>

#include "core/statistics/statistics.hpp"

namespace dynamiccl {

void CallSamples::add(Micros mean, std::size_t calls) {
  log_us_.push_back(std::log(mean.count()));
  calls_ += calls;
  if (log_us_.size() > most_) log_us_.erase(log_us_.begin());
}

void CallSamples::clear() {
  log_us_.clear();
  calls_ = 0;
}

double CallSamples::level() const { return log_us_.empty() ? 0 : median(log_us_); }

double CallSamples::newest(std::size_t samples) const {
  const auto from =
      std::ssize(log_us_) - std::min(std::ssize(log_us_), static_cast<std::ptrdiff_t>(samples));
  return log_us_.empty() ? 0 : median({log_us_.begin() + from, log_us_.end()});
}

double CallSamples::noise() const {
  if (log_us_.size() < 3) return 0;
  std::vector<double> steps;
  for (std::size_t i = 1; i < log_us_.size(); ++i)
    steps.push_back(std::abs(log_us_[i] - log_us_[i - 1]));
  constexpr double kMadToSd = 1.4826;
  return kMadToSd * median(steps) / std::sqrt(2.0);
}

TrialVerdict judge_calls(const CallSamples& trial, const CallSamples& reference, double noise,
                         const TrialRules& rules) {
  if (trial.size() == 0 || reference.size() == 0) return TrialVerdict::open;
  const double samples = static_cast<double>(trial.size());
  const double error = noise * std::sqrt(1 / samples + 1 / static_cast<double>(reference.size()));
  const double slower = trial.level() - reference.level();
  if (slower - rules.worse_z * error > rules.least_gain) return TrialVerdict::worse;
  // One lucky burst is no gain.
  if (trial.size() < 2) return TrialVerdict::open;
  if (slower + rules.better_z * error < -rules.least_gain) return TrialVerdict::better;
  if (slower - rules.futile_z * error > -rules.least_gain) return TrialVerdict::no_better;
  if (trial.size() < rules.most_samples && trial.calls() < rules.most_calls)
    return TrialVerdict::open;
  return slower + error < 0 ? TrialVerdict::better : TrialVerdict::no_better;
}

}  // namespace dynamiccl
