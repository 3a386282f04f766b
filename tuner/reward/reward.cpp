#include "tuner/reward/reward.hpp"

#include <algorithm>
#include <cmath>

namespace dynamiccl {
namespace {

/// NaN counts as the worst: a term that cannot be computed must not look good.
double unit(double value) { return std::isnan(value) ? 1.0 : std::clamp(value, 0.0, 1.0); }

double relative(Micros time, Micros reference, double limit, const char* what) {
  if (!(reference.count() > 0))
    throw Error(ErrorKind::input, std::string("the reward needs a ") + what +
                                      " above zero: measure the library's default first");
  const double ratio = time.count() / reference.count();
  return std::isnan(ratio) ? limit : std::clamp(ratio, 0.0, limit);
}

/// |delta loss|^-1 grows without bound as the loss settles: 1e-3 / |delta| within [0, 1].
double stall(const StepOutcome& outcome) {
  if (!outcome.loss_delta || outcome.plateau) return 0;
  constexpr double kUsualStep = 1e-3;
  return unit(kUsualStep / std::max(std::abs(*outcome.loss_delta), kUsualStep));
}

double tier_penalty(const StepOutcome& outcome) {
  if (!outcome.tier_max || *outcome.tier_max < 2) return 0;
  return unit((*outcome.tier_max - 1) / 3.0 * outcome.aggressiveness);
}

}  // namespace

double RewardTerms::lower_bound(const RewardWeights& weights) {
  return -(weights.base_limit * (1 + weights.call_shaping) + weights.switched + weights.congestion +
           weights.probe + weights.convergence + weights.sm + weights.tier + weights.fault);
}

RewardTerms reward(const StepOutcome& outcome, const RewardWeights& weights) {
  RewardTerms terms;
  terms.base =
      -relative(outcome.step, outcome.reference_step, weights.base_limit, "reference step time");
  terms.call_shaping =
      -weights.call_shaping *
      relative(outcome.call, outcome.reference_call, weights.base_limit, "reference call latency");
  terms.switched = outcome.switched ? -weights.switched : 0;
  terms.congestion = -weights.congestion * unit(outcome.congestion);
  terms.probe = outcome.exploratory ? -weights.probe : 0;
  terms.convergence = -weights.convergence * stall(outcome);
  terms.sm = -weights.sm * unit(outcome.sm_share);
  terms.tier = -weights.tier * tier_penalty(outcome);
  terms.fault = outcome.fault ? -weights.fault : 0;
  return terms;
}

PlateauDetector::PlateauDetector(int window, double relative)
    : window_(static_cast<std::size_t>(std::max(window, 2))), relative_(relative) {}

std::optional<double> PlateauDetector::add(double loss) {
  if (!std::isfinite(loss)) return std::nullopt;
  const std::optional<double> delta =
      recent_.empty() ? std::nullopt : std::optional(loss - recent_.back());
  recent_.push_back(loss);
  if (recent_.size() > window_) recent_.erase(recent_.begin());
  return delta;
}

bool PlateauDetector::plateau() const {
  if (recent_.size() < window_) return false;
  // Halves instead of end points: a noisy loss hardly ever stands still between two steps.
  const std::size_t half = recent_.size() / 2;
  double older = 0;
  double newer = 0;
  for (std::size_t i = 0; i < half; ++i) {
    older += recent_[i];
    newer += recent_[recent_.size() - 1 - i];
  }
  const double scale = std::max(std::abs(older), 1e-12);
  return std::abs(newer - older) / scale < relative_;
}

}  // namespace dynamiccl
