#pragma once

#include <chrono>

namespace dynamiccl {

/// CLOCK_MONOTONIC in microseconds; the same clock for all processes of one host, in containers
/// too unless they have a time namespace of their own.
inline double now_us() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double, std::micro>(Clock::now().time_since_epoch()).count();
}

/// Wall clock, seconds since 1970.
inline double unix_now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace dynamiccl
