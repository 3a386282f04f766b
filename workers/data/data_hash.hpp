#pragma once

#include <cstddef>
#include <cstdint>

#include "core/vocabulary/splitmix64.hpp"

namespace dynamiccl {

/// Elements that share one key derivation.
inline constexpr std::size_t kDataBlock = 1024;

/// Key of a rank's whole input.
DYN_HOST_DEVICE constexpr std::uint64_t rank_key(std::uint64_t key, int rank) {
  return splitmix64_of(key ^ splitmix64_of(static_cast<std::uint64_t>(rank)));
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
