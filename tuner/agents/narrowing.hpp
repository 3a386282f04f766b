#pragma once

#include <vector>

#include "tuner/action/action_space.hpp"

namespace dynamiccl {

/// What was measured of a task's arms so far.
struct MeasuredArms {
  const ActionSpace& space;
  const std::vector<int>& tries;    ///< by arm, working measurements
  const std::vector<double>& seen;  ///< mean ln(us) of these
  const std::vector<bool>& failed;
  double noise_sd;  ///< of ln(us) of one measurement
};

/// Once a peak is known, only its neighbours are worth trying: along one resource, other values
/// alike, an implementation's fastest arm has a surely slower one measured on either side of it (on
/// its only side at an end of the axis). Then arms of the implementation that are more than one
/// place from it on any axis are closed. "default" has no place on an axis and is near to all.
/// @returns by arm: closed
std::vector<bool> beyond_peaks(const MeasuredArms& measured);

/// Backing off: where an arm failed or was surely slower than the default, arms of the same
/// implementation with as much or more of every resource are closed.
/// @returns by arm: closed
std::vector<bool> more_aggressive_than_slow(const MeasuredArms& measured);

}  // namespace dynamiccl
