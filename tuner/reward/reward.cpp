#include "tuner/reward/reward.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/vocabulary/error.hpp"

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

}  // namespace

double RewardTerms::lower_bound(const RewardWeights& weights) {
  return -(weights.base_limit * (1 + weights.call_shaping) + weights.switched + weights.congestion +
           weights.probe + weights.sm + weights.fault);
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
  terms.sm = -weights.sm * unit(outcome.sm_share);
  terms.fault = outcome.fault ? -weights.fault : 0;
  return terms;
}

}  // namespace dynamiccl
