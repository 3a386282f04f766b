#pragma once

#include <cstddef>
#include <cstdint>

namespace dynamiccl {

#ifdef __CUDACC__
#define DYN_ON_GPU_TOO __host__ __device__
#else
#define DYN_ON_GPU_TOO
#endif

/// What codecs draw, the same on every machine and every GPU.

/// A random word of a place.
DYN_ON_GPU_TOO constexpr std::uint32_t random_word(std::uint32_t key, std::uint32_t place) {
  // Hash Prospector's low-bias 32-bit mixer.
  std::uint32_t x = key + place * 0x9E3779B9U;
  x ^= x >> 16;
  x *= 0x21F0AAADU;
  x ^= x >> 15;
  x *= 0x735A2D97U;
  x ^= x >> 15;
  return x;
}

/// splitmix64's step and finaliser.
DYN_ON_GPU_TOO constexpr std::uint64_t mixed_word(std::uint64_t z) {
  z += 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

/// How many of `count` values stratum `i` of `kept` has: the reciprocal of the chance of each.
DYN_ON_GPU_TOO constexpr std::size_t stratum_size(std::size_t i, std::size_t kept,
                                                  std::size_t count) {
  return count / kept + (i < count % kept ? 1 : 0);
}
/// The place drawn in that stratum.
DYN_ON_GPU_TOO constexpr std::size_t drawn_place(std::size_t i, std::size_t kept, std::size_t count,
                                                 std::uint32_t key) {
  const std::size_t rest = count % kept;
  const std::size_t start = i * (count / kept) + (i < rest ? i : rest);
  const auto word = static_cast<std::uint64_t>(random_word(key, static_cast<std::uint32_t>(i)));
  return start + static_cast<std::size_t>((word * stratum_size(i, kept, count)) >> 32);
}

}  // namespace dynamiccl
