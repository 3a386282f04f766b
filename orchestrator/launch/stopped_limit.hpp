#pragma once

#include <cstdlib>
#include <string>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/units.hpp"

namespace dynamiccl {

/// After which a rank that a signal has stopped is not waited for any longer: DYNAMICCL_STOPPED_S,
/// else 30 s.
/// @throws Error(input) for what is no number of seconds: "5m" must not end a run after 5 s. With
/// far less the looks themselves would take a core.
inline Micros stopped_limit() {
  constexpr double kUsualS = 30;
  constexpr double kLeastS = 0.5;
  constexpr double kMostS = 1e6;
  const char* told = std::getenv("DYNAMICCL_STOPPED_S");
  if (told == nullptr || *told == '\0') return Micros(kUsualS * 1e6);
  char* end = nullptr;
  const double seconds = std::strtod(told, &end);
  if (*end != '\0' || !(seconds >= kLeastS && seconds <= kMostS))
    throw Error(
        ErrorKind::input,
        "DYNAMICCL_STOPPED_S is \"" + std::string(told) +
            "\", no number of seconds from 0.5 to 1000000: set one such as 30, or unset it");
  return Micros(seconds * 1e6);
}

}  // namespace dynamiccl
