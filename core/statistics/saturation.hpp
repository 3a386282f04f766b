#pragma once

#include "core/vocabulary/units.hpp"

namespace dynamiccl {

/// Flag of a task for which even the best lossless setting is too slow.
inline constexpr const char* kLosslessSaturated = "lossless_saturated";
inline constexpr double kSaturationMargin = 0.2;

/// Even the best lossless setting takes longer than what the workload leaves, so that only sending
/// less can help.
/// @param allowed the time at which communication no longer limits the step: where C2C foretells
/// that it takes as long as computation (T_comm / T_comp = 1); 0 = not known, never saturated
inline bool lossless_saturated(Micros best, Micros allowed, double margin = kSaturationMargin) {
  return allowed.count() > 0 && best.count() > allowed.count() * (1 + margin);
}

}  // namespace dynamiccl
