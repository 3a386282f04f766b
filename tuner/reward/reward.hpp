#pragma once

#include "core/vocabulary/units.hpp"

namespace dynamiccl {

/// Weights of the reward's terms; each term before its weight lies in [0, 1], the base in
/// [0, `base_limit`], so that the whole is bounded whatever is measured.
struct RewardWeights {
  double switched = 0.02;
  double congestion = 0.05;
  double probe = 0.02;
  double sm = 0.02;
  double fault = 1.0;
  double call_shaping = 0.1;  ///< share of the call's own latency besides the step time
  double base_limit = 10.0;   ///< steps slower than this many reference steps count as this many
};

/// What one step under a decision brought.
struct StepOutcome {
  Micros step;            ///< end-to-end step time; without a step, the call's latency
  Micros reference_step;  ///< the same under the library's default; > 0
  Micros call;            ///< the collective's latency
  Micros reference_call;  ///< > 0
  bool switched = false;
  bool exploratory = false;
  bool fault = false;
  double congestion = 0;  ///< 0 to 1
  double sm_share = 0;    ///< share of multiprocessors that communication takes
};

/// Terms stored apart with the decision. All are <= 0 and finite.
struct RewardTerms {
  double base = 0;
  double call_shaping = 0;
  double switched = 0;
  double congestion = 0;
  double probe = 0;
  double sm = 0;
  double fault = 0;
  [[nodiscard]] double total() const {
    return base + call_shaping + switched + congestion + probe + sm + fault;
  }
  /// Lowest total that these weights allow.
  static double lower_bound(const RewardWeights& weights);
};

/// @throws Error(input) when a reference time is not above zero
RewardTerms reward(const StepOutcome& outcome, const RewardWeights& weights = {});

}  // namespace dynamiccl
