#pragma once

#include <cstdlib>
#include <string>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/units.hpp"

namespace dynamiccl {

/// How long somebody is waited for: an environment variable's seconds, `usual_s` where it is not
/// set.
/// @throws Error(input) for what is no number of seconds from 0.5 to a million: "5m" is not 5 s
inline Micros seconds_of_variable(const char* name, double usual_s) {
  constexpr double kLeastS = 0.5;
  constexpr double kMostS = 1e6;
  const char* told = std::getenv(name);
  if (told == nullptr || *told == '\0') return Micros(usual_s * 1e6);
  char* end = nullptr;
  const double seconds = std::strtod(told, &end);
  if (*end != '\0' || !(seconds >= kLeastS && seconds <= kMostS))
    throw Error(
        ErrorKind::input,
        std::string(name) + " is \"" + told +
            "\", no number of seconds from 0.5 to 1000000: set one such as 30, or unset it");
  return Micros(seconds * 1e6);
}

}  // namespace dynamiccl
