#pragma once

#include "core/vocabulary/seconds_variable.hpp"

namespace dynamiccl {

/// After which a rank that a signal has stopped is not waited for any longer.
/// @throws Error(input)
inline Micros stopped_limit() { return seconds_of_variable("DYNAMICCL_STOPPED_S", 30); }

}  // namespace dynamiccl
