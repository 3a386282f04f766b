#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"
#include "tuner/action/action_space.hpp"
#include "tuner/state/state.hpp"

namespace dynamiccl {

/// What a guard decides about a choice.
DYN_NAMED_ENUM(
    GuardVerdict, "guard verdict", '-', pass,
    ina_passthrough,      ///< in-network aggregation is active: never a reducing choice
    no_actuator,          ///< a library that cannot be set from here
    failed,               ///< the setting failed or gave wrong data
    above_gloo_floor,     ///< slower than 2x Gloo on the same task
    slower_than_default,  ///< slower than the default beyond noise
    not_confirmed);       ///< not surely faster than the default on fresh launches; taken back

/// Flags that reach the user; core/statistics/saturation.hpp has one more.
inline constexpr std::string_view kNonActionable = "non_actionable_regime";
/// One setting at most was measured, the default as a rule: there is nothing to compare.
inline constexpr std::string_view kUnexplored = "unexplored";
/// Whether a setting is faster stayed open.
inline constexpr std::string_view kUndecided = "undecided";
/// Every other setting was measured, and none of them reached what it is to reach.
inline constexpr std::string_view kOnlyDefault = "only_default_reaches";
/// There is no other setting than the default that may be chosen.
inline constexpr std::string_view kNothingToSet = "nothing_to_set";
/// Slower than Gloo at all, the lower threshold: reported, not reverted.
inline constexpr std::string_view kBelowFloor = "slower_than_gloo";

struct GuardLimits {
  double gloo_floor = 2.0;
  double sanity_floor = 1.0;
  /// A time counts as slower than the default from this many standard deviations of a launch on.
  double noise_widths = 3.0;
  double noise_sd = 0.05;  ///< of ln(time) between launches of one setting
  int faults = 2;          ///< after so many failed settings a task's exploration ends
};

/// May this task be tuned at all? Anything but `pass` leaves the library alone.
GuardVerdict admit(const State& state);

/// What a measurement of a setting means. @param floor Gloo's time for the same task, if known
GuardVerdict judge_trial(bool ok, Micros time, Micros default_time, std::optional<Micros> floor,
                         const GuardLimits& limits = {});

}  // namespace dynamiccl
