#pragma once

#include <array>

#include "core/vocabulary/vocabulary.hpp"
#include "tuner/simulator/collective_cost.hpp"

namespace dynamiccl {

/// A tier of the network between ranks. Bandwidths from the survey's tier table; latency
/// multipliers 1, 7, 15, 30 against tier 1, none given for tier 0.
struct TierLink {
  double latency_multiplier;
  double low_bytes_per_us;
  double high_bytes_per_us;
};
inline constexpr std::array<TierLink, 5> kTierLinks{{
    {0.3, 5.0e5, 2.0e6},    // same die
    {1, 2.0e4, 9.0e5},      // same switch: shared memory 20 GB/s to NVLink 900 GB/s
    {7, 1.25e4, 5.0e4},     // same rack: 100 to 400 Gb/s
    {15, 3.125e3, 1.25e4},  // same zone: 25 to 100 Gb/s
    {30, 125, 3.125e3},     // across datacentres: 1 to 25 Gb/s
}};

/// Start-up of a message on tier 1 through a GPU library, microseconds.
inline constexpr double kTier1AlphaUs = 3;

/// Constants for a place between the tier's low (0) and high (1) bandwidth.
LinkParameters tier_cost(int tier, double place);

/// Range of the factor on a collective's time in an environment against bare metal, by backend: one
/// published container study; low and high are its two harnesses.
struct ContainerFactor {
  double low = 1;
  double high = 1;
};
ContainerFactor container_factor(Backend backend, EnvironmentKind environment,
                                 Collective collective, Architecture architecture);

}  // namespace dynamiccl
