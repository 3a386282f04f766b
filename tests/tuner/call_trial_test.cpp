#include "tuner/search/call_trial.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <random>

using namespace dynamiccl;

namespace {

/// Trials of a setting that takes `factor` of the time in force, one sample after the other.
struct Outcome {
  int worse = 0;
  int better = 0;
  int no_better = 0;
  double samples = 0;  ///< mean
};

Outcome outcome(double factor, double noise, int trials) {
  std::mt19937 random(11);
  std::normal_distribution<double> normal(0, noise);
  Outcome all;
  for (int i = 0; i < trials; ++i) {
    CallSamples reference, trial;
    for (int k = 0; k < 8; ++k) reference.add(Micros(100 * std::exp(normal(random))), 4);
    TrialVerdict verdict = TrialVerdict::open;
    while (verdict == TrialVerdict::open) {
      trial.add(Micros(100 * factor * std::exp(normal(random))), 4);
      all.samples += 1.0 / trials;
      verdict = judge_calls(trial, reference, noise, TrialRules{});
    }
    all.worse += verdict == TrialVerdict::worse ? 1 : 0;
    all.better += verdict == TrialVerdict::better ? 1 : 0;
    all.no_better += verdict == TrialVerdict::no_better ? 1 : 0;
  }
  return all;
}

}  // namespace

TEST_CASE("a setting that doubles a call's time is given up at once", "[E-108]") {
  for (const double noise : {0.02, 0.1, 0.2}) {
    const Outcome twice = outcome(2, noise, 500);
    INFO("noise " << noise << ", samples " << twice.samples);
    CHECK(twice.worse >= 470);
    CHECK(twice.samples < 1.3);
  }
}

TEST_CASE("settings that are no faster seldom pass for faster, faster ones do", "[E-108]") {
  for (const double noise : {0.03, 0.1}) {
    INFO("noise " << noise);
    // What is as fast costs nothing, and the setting in force is asked again before it goes.
    CHECK(outcome(1, noise, 1000).better <= 200);
    CHECK(outcome(1.1, noise, 1000).better <= 10);
    CHECK(outcome(0.7, noise, 1000).better >= 950);
    CHECK(outcome(0.7, noise, 1000).worse == 0);
  }
}

TEST_CASE("few samples decide where times are steady, more where they are noisy", "[E-108]") {
  const Outcome steady = outcome(0.9, 0.02, 500);
  const Outcome noisy = outcome(0.9, 0.15, 500);
  INFO(steady.samples << " and " << noisy.samples);
  CHECK(steady.samples < 2.2);
  CHECK(noisy.samples > 1.3 * steady.samples);
}

TEST_CASE("samples keep their newest, and say how noisy they are", "[E-108]") {
  CallSamples samples(4);
  CHECK(samples.noise() == 0);
  for (const double us : {1000.0, 1000.0, 10.0, 10.0, 10.0, 10.0}) samples.add(Micros(us), 3);
  CHECK(samples.size() == 4);
  CHECK(samples.calls() == 18);
  CHECK(std::abs(samples.level() - std::log(10.0)) < 1e-9);
  CHECK(samples.noise() == 0);
  samples.add(Micros(40), 1);
  CHECK(std::abs(samples.newest(1) - std::log(40.0)) < 1e-9);
  samples.add(Micros(10), 1);
  CHECK(samples.noise() > 0.5);
}
