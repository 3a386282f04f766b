#include "tuner/reward/reward.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <random>

using namespace dynamiccl;

namespace {
StepOutcome usual() {
  StepOutcome outcome;
  outcome.step = outcome.reference_step = Micros{1000};
  outcome.call = outcome.reference_call = Micros{100};
  return outcome;
}
}  // namespace

TEST_CASE("the reward is minus the step time in units of the default's", "[E-82][E-83][X-43]") {
  StepOutcome outcome = usual();
  CHECK(reward(outcome).base == -1);
  CHECK(reward(outcome).total() == -1.1);
  outcome.step = Micros{500};
  CHECK(reward(outcome).base == -0.5);
  // The call's own latency shapes, the step decides.
  StepOutcome faster_call = usual();
  faster_call.call = Micros{50};
  StepOutcome faster_step = usual();
  faster_step.step = Micros{500};
  CHECK(reward(faster_step).total() > reward(faster_call).total());
  outcome.reference_step = Micros{0};
  CHECK_THROWS_AS(reward(outcome), Error);
}

TEST_CASE("every term is kept apart", "[E-84][E-86][E-90][E-93]") {
  StepOutcome outcome = usual();
  outcome.switched = outcome.exploratory = outcome.fault = true;
  outcome.congestion = 0.5;
  outcome.sm_share = 0.25;
  const RewardWeights weights;
  const RewardTerms terms = reward(outcome, weights);
  CHECK(terms.switched == -weights.switched);
  CHECK(terms.probe == -weights.probe);
  CHECK(terms.fault == -weights.fault);
  CHECK(terms.congestion == -weights.congestion / 2);
  CHECK(terms.sm == -weights.sm / 4);
}

TEST_CASE("no measurement makes the reward leave its bounds") {
  const RewardWeights weights;
  std::mt19937_64 random(3);
  const std::array odd{0.0,
                       1e300,
                       -5.0,
                       std::nan(""),
                       std::numeric_limits<double>::infinity(),
                       -std::numeric_limits<double>::infinity(),
                       1e-300};
  const auto pick = [&] { return odd[random() % odd.size()]; };
  for (int i = 0; i < 5000; ++i) {
    StepOutcome outcome = usual();
    outcome.step = Micros{pick()};
    outcome.call = Micros{pick()};
    outcome.congestion = pick();
    outcome.sm_share = pick();
    outcome.fault = random() % 2 == 0;
    const double total = reward(outcome, weights).total();
    CHECK(std::isfinite(total));
    CHECK(total <= 0);
    CHECK(total >= RewardTerms::lower_bound(weights));
  }
}
