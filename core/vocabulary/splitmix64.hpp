#pragma once

#include <cstdint>

// One source of what is drawn for host and device code: both must give the same bits.
#if defined(__CUDACC__)
#define DYN_HOST_DEVICE __host__ __device__
#else
#define DYN_HOST_DEVICE
#endif

namespace dynamiccl {

// splitmix64 (Steele, Lea, Flood 2014, doi 10.1145/2714064.2660195): small, seedable and the same
// on every platform, which the standard library's shuffle and distributions are not.

/// How far its state goes with each number.
inline constexpr std::uint64_t kSplitmix64Step = 0x9E3779B97F4A7C15ULL;

/// Its finaliser: each bit of `z` decides about all bits of the result.
DYN_HOST_DEVICE constexpr std::uint64_t splitmix64_mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

/// Its first number from the seed `x`: a hash.
DYN_HOST_DEVICE constexpr std::uint64_t splitmix64_of(std::uint64_t x) {
  return splitmix64_mixed(x + kSplitmix64Step);
}

/// Its next number; `state` is the seed at first.
constexpr std::uint64_t splitmix64_next(std::uint64_t& state) {
  state += kSplitmix64Step;
  return splitmix64_mixed(state);
}

}  // namespace dynamiccl
