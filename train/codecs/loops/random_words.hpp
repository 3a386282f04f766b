#pragma once

#include <cstddef>
#include <cstdint>

#include "workers/data/data_hash.hpp"

namespace dynamiccl {

/// What codecs draw, the same on every machine and every GPU.

/// The random word of a key and a place: always the same one.
DYN_HOST_DEVICE constexpr std::uint32_t random_word(std::uint32_t key, std::uint32_t place) {
  // Hash Prospector's low-bias 32-bit mixer.
  std::uint32_t x = key + place * 0x9E3779B9U;
  x ^= x >> 16;
  x *= 0x21F0AAADU;
  x ^= x >> 15;
  x *= 0x735A2D97U;
  x ^= x >> 15;
  return x;
}

/// How many of `count` values stratum `i` of `kept` has: the reciprocal of the chance of each.
DYN_HOST_DEVICE constexpr std::size_t stratum_size(std::size_t i, std::size_t kept,
                                                   std::size_t count) {
  return count / kept + (i < count % kept ? 1 : 0);
}
/// The place drawn in that stratum.
DYN_HOST_DEVICE constexpr std::size_t drawn_place(std::size_t i, std::size_t kept,
                                                  std::size_t count, std::uint32_t key) {
  const std::size_t rest = count % kept;
  const std::size_t start = i * (count / kept) + (i < rest ? i : rest);
  const auto word = static_cast<std::uint64_t>(random_word(key, static_cast<std::uint32_t>(i)));
  return start + static_cast<std::size_t>((word * stratum_size(i, kept, count)) >> 32);
}

}  // namespace dynamiccl
