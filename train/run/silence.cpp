#include "train/run/silence.hpp"

#include <algorithm>

#include "core/vocabulary/seconds_variable.hpp"

namespace dynamiccl {
namespace {

/// The computation of a round, of whoever is slowest.
double round_us(const TrainingSpec& spec, Micros compute) {
  return spec.local_steps * compute.count() * std::max(1.0, spec.slow_factor);
}

}  // namespace

Micros longest_silence(const TrainingSpec& spec, int workers, Micros compute) {
  constexpr double kUsualS = 30;
  constexpr double kStandstill = 20;  // steps
  // Gradients and weights of all workers one after the other, over a link of 10 Mbit/s.
  constexpr double kBytesPerUs = 1.25;
  const double bytes =
      2.0 * workers * 4 * static_cast<double>(facts_of(spec.model, spec.batch).parameters);
  return Micros(seconds_of_variable("DYNAMICCL_SILENCE_S", kUsualS).count() + bytes / kBytesPerUs +
                kStandstill * round_us(spec, compute));
}

Micros longest_wait(const TrainingSpec& spec, int workers, Micros compute) {
  // Each worker does every worker's rounds.
  const double replayed = 2.0 * workers * spec.oracle * (spec.switch_to ? 2 : 1);
  constexpr double kSlower = 4;  // than in its profile
  return Micros(longest_silence(spec, workers, compute).count() +
                kSlower * replayed * round_us(spec, compute));
}

}  // namespace dynamiccl
