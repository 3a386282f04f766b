#pragma once

#include <string_view>

namespace dynamiccl {

/// Environments whose ranks run on a machine that only a file describes are named so, and no
/// others: what their cells take is simulated, and is never set against what was measured.
inline constexpr std::string_view kSimulatedPrefix = "simulated-";

inline bool is_simulated(std::string_view environment) {
  return environment.starts_with(kSimulatedPrefix);
}

}  // namespace dynamiccl
