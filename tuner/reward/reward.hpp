#pragma once

#include <optional>
#include <vector>

#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// Weights of the reward's terms; each term before its weight lies in [0, 1], the base in
/// [0, `base_limit`], so that the whole is bounded whatever is measured.
struct RewardWeights {
  double switched = 0.02;
  double congestion = 0.05;
  double probe = 0.02;
  double convergence = 0.02;
  double sm = 0.02;
  double tier = 0.02;
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
  double congestion = 0;             ///< 0 to 1
  double sm_share = 0;               ///< share of multiprocessors that communication takes
  double aggressiveness = 0;         ///< 0 to 1: Simple protocol and large chunks
  std::optional<int> tier_max;       ///< 0 to 4
  std::optional<double> loss_delta;  ///< loss now minus loss a step before
  bool plateau = false;              ///< see PlateauDetector
};

/// Terms stored apart with the decision. All are <= 0 and finite.
struct RewardTerms {
  double base = 0;
  double call_shaping = 0;
  double switched = 0;
  double congestion = 0;
  double probe = 0;
  double convergence = 0;
  double sm = 0;
  double tier = 0;
  double fault = 0;
  [[nodiscard]] double total() const {
    return base + call_shaping + switched + congestion + probe + convergence + sm + tier + fault;
  }
  /// Lowest total that these weights allow.
  static double lower_bound(const RewardWeights& weights);
};

/// @throws Error(input) when a reference time is not above zero
RewardTerms reward(const StepOutcome& outcome, const RewardWeights& weights = {});

/// Is the loss still moving? The convergence term is off at a plateau, where |delta loss|^-1 would
/// punish a job for having converged.
class PlateauDetector {
 public:
  /// @param window steps looked at
  /// @param relative movement over the window, relative to the loss, below which it is a plateau
  explicit PlateauDetector(int window = 50, double relative = 1e-3);
  /// @returns loss minus the previous loss; nullopt for the first and for a loss that is no number
  std::optional<double> add(double loss);
  [[nodiscard]] bool plateau() const;

 private:
  std::vector<double> recent_;
  std::size_t window_;
  double relative_;
};

}  // namespace dynamiccl
