#pragma once

#include <cstddef>
#include <cstdint>

// One source of what is drawn for host and device code: both must give the same bits.
#if defined(__CUDACC__)
#define DYN_HOST_DEVICE __host__ __device__
#else
#define DYN_HOST_DEVICE
#endif

namespace dynamiccl {

/// Elements that share one key derivation.
inline constexpr std::size_t kDataBlock = 1024;

/// Finaliser of SplitMix64 (Steele, Lea, Flood, doi 10.1145/2714064.2660195).
DYN_HOST_DEVICE constexpr std::uint64_t stir(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// Key of a rank's whole input.
DYN_HOST_DEVICE constexpr std::uint64_t rank_key(std::uint64_t key, int rank) {
  return stir(key ^ stir(static_cast<std::uint64_t>(rank)));
}

/// Value 0..range-1 of a lane under its block's key: 32-bit finaliser of MurmurHash3, two
/// multiplications, no table.
DYN_HOST_DEVICE constexpr std::uint32_t lane_value(std::uint32_t block_key, std::uint32_t lane,
                                                   std::uint32_t range) {
  std::uint32_t x = block_key + lane * 0x9E3779B1U;
  x = (x ^ (x >> 16)) * 0x85EBCA6BU;
  x = (x ^ (x >> 13)) * 0xC2B2AE35U;
  return ((x >> 16) * range) >> 16;
}

}  // namespace dynamiccl
