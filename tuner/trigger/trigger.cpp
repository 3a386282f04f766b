#include "tuner/trigger/trigger.hpp"

#include <algorithm>
#include <cmath>

#include "core/statistics/statistics.hpp"

namespace dynamiccl {
namespace {

/// Standard deviation of a normal over its median absolute deviation.
constexpr double kMadToSd = 1.4826;
/// Observations over which the interference level is smoothed.
constexpr double kSmoothing = 0.3;

}  // namespace

Trigger::Trigger(const TriggerOptions& options) : options_(options) {
  block_.reserve(static_cast<std::size_t>(options.block));
}

void Trigger::restart() {
  const std::int64_t calls = calls_;
  const TriggerOptions options = options_;
  *this = Trigger(options);
  calls_ = calls;
  again_ = true;
}

TriggerState Trigger::add(Micros latency) {
  state_.alarm = false;
  state_.beyond_level.reset();
  if (!(latency.count() > 0) || !std::isfinite(latency.count())) return state_;
  ++calls_;
  if (reference_.size() >= static_cast<std::size_t>(options_.reference))
    state_.beyond_level = std::log(latency.count()) - level_;
  block_.push_back(std::log(latency.count()));
  if (block_.size() < static_cast<std::size_t>(options_.block)) return state_;
  const auto middle = block_.begin() + static_cast<std::ptrdiff_t>(block_.size() / 2);
  std::nth_element(block_.begin(), middle, block_.end());
  const double observation = *middle;
  block_.clear();
  if (reference_.size() < static_cast<std::size_t>(options_.reference))
    learn_reference(observation);
  else
    observe(observation);
  return state_;
}

void Trigger::learn_reference(double observation) {
  // Trouble seldom comes alone: while a level is learnt anew, what is learnt so far is compared
  // with a gross change. At the very first, calls still warm up.
  if (again_ && reference_.size() >= static_cast<std::size_t>(options_.early)) {
    settle();
    correlation_ = 0;
    sd_ = std::max(options_.early_sd, sd_);
    if (judge(observation - level_)) return;
  }
  reference_.push_back(observation);
  if (reference_.size() < static_cast<std::size_t>(options_.reference)) return;
  settle();
  slow_score_ = 0;
  fast_score_ = 0;
  // They were compared with a level that still moved.
  recent_.clear();
  waiting_ = 0;
}

void Trigger::settle() {
  level_ = median(reference_);
  // A few observations underestimate the correlation: what is left out would look like a change.
  const double found = lag1_autocorrelation(reference_);
  const double n = static_cast<double>(reference_.size());
  correlation_ = std::clamp(found + (1 + 3 * found) / n, 0.0, 0.9);
  const double spread = std::max(kMadToSd * median_absolute_deviation(reference_),
                                 0.7 * standard_deviation(reference_));
  // The prediction's error is smaller than the spread by what the last residual explains; its
  // estimate from few observations is widened by two of its own standard errors.
  const double widened = spread * (1 + 2 / std::sqrt(2 * (n - 1)));
  sd_ = std::max(options_.least_sd, widened * std::sqrt(1 - correlation_ * correlation_));
  last_residual_ = reference_.back() - level_;
}

void Trigger::observe(double observation) {
  const double residual = observation - level_;
  if (judge(residual)) return;
  // Nothing of what may be a change flows into the level that it is compared with.
  if (slow_score_ < 0.3 * options_.threshold && fast_score_ < 0.3 * options_.threshold)
    level_ += options_.forgetting * std::clamp(residual, -sd_, sd_);
}

bool Trigger::judge(double residual) {
  const double error = residual - correlation_ * last_residual_;
  const double standardised = std::clamp(error / sd_, -options_.clip, options_.clip);
  last_residual_ = std::clamp(residual, -options_.clip * sd_, options_.clip * sd_);
  slow_score_ = std::max(0.0, slow_score_ + standardised - options_.slack);
  fast_score_ = std::max(0.0, fast_score_ - standardised - options_.slack);
  smooth_ += kSmoothing * (residual - smooth_);
  recent_.push_back(residual);
  if (recent_.size() > static_cast<std::size_t>(options_.lasting) + 1)
    recent_.erase(recent_.begin());
  const bool sure = std::max(slow_score_, fast_score_) >= options_.threshold;
  slow_score_ = std::min(slow_score_, options_.threshold);
  fast_score_ = std::min(fast_score_, options_.threshold);
  state_.reconstruction_error = std::abs(error) / sd_;
  state_.congestion = slow_score_ / options_.threshold;
  state_.cusum_score = std::max(slow_score_, fast_score_) / options_.threshold;
  state_.interference = std::clamp(1 - std::exp(-std::max(0.0, smooth_)), 0.0, 1.0);
  waiting_ = sure ? waiting_ + 1 : 0;
  const bool alarm = sure && lasts();
  if (!alarm && waiting_ < options_.settling) return false;
  const TriggerState said = state_;
  restart();
  state_ = said;
  state_.alarm = alarm;
  return true;
}

bool Trigger::lasts() const {
  const double side = slow_score_ >= fast_score_ ? 1 : -1;
  return std::count_if(recent_.begin(), recent_.end(), [&](double residual) {
           return side * residual >= options_.least_change;
         }) >= options_.lasting;
}

}  // namespace dynamiccl
