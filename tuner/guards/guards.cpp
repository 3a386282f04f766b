#include "tuner/guards/guards.hpp"

#include <cmath>

namespace dynamiccl {

GuardVerdict admit(const State& state) {
  if (state.ina_active.value_or(false)) return GuardVerdict::ina_passthrough;
  if (!state.library) return GuardVerdict::pass;
  switch (*state.library) {
    case CclLibrary::nccl:
    case CclLibrary::openmpi:
    case CclLibrary::mpich:
    case CclLibrary::gloo:
    case CclLibrary::own:
      return GuardVerdict::pass;
    default:
      return GuardVerdict::no_actuator;
  }
}

GuardVerdict judge_trial(bool ok, Micros time, Micros default_time, std::optional<Micros> floor,
                         const GuardLimits& limits) {
  if (!ok || !(time.count() > 0)) return GuardVerdict::failed;
  if (floor && time.count() > limits.gloo_floor * floor->count())
    return GuardVerdict::above_gloo_floor;
  const double slack = std::exp(limits.noise_widths * limits.noise_sd);
  if (default_time.count() > 0 && time.count() > default_time.count() * slack)
    return GuardVerdict::slower_than_default;
  return GuardVerdict::pass;
}

}  // namespace dynamiccl
