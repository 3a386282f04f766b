#pragma once
// A bit for each value, which three codecs share.
#include "train/codecs/loops/loops.hpp"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace dynamiccl {

DYN_LOOP unsigned eight_signs(const float* values) {
#if defined(__x86_64__)
  const int low = _mm_movemask_ps(_mm_loadu_ps(values));
  const int high = _mm_movemask_ps(_mm_loadu_ps(values + 4));
  return static_cast<unsigned>(low | (high << 4));
#else
  unsigned bits = 0;
  for (unsigned j = 0; j < 8; ++j) bits |= (bits_of(values[j]) >> 31) << j;
  return bits;
#endif
}
DYN_LOOP void signs_loop(const float* values, std::size_t count, std::uint8_t* bits) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) bits[i / 8] = static_cast<std::uint8_t>(eight_signs(values + i));
  if (i == count) return;
  unsigned last = 0;
  for (std::size_t j = i; j < count; ++j) last |= (bits_of(values[j]) >> 31) << (j - i);
  bits[i / 8] = static_cast<std::uint8_t>(last);
}
/// Bits and sums in one pass over memory: what a chunk brought is in the cache.
DYN_LOOP std::array<double, 3> signs_and_sums_loop(const float* values, std::size_t count,
                                                   std::uint8_t* bits) {
  std::array<double, 3> sums{};  // not negative, negative, number of those
  for (std::size_t at = 0; at < count; at += kSumChunk) {
    const std::size_t some = std::min(kSumChunk, count - at);
    const float* chunk = values + at;
    signs_loop(chunk, some, bits + at / 8);
    sums[0] += sum_in_lanes(chunk, some, [](float v) { return v > 0 ? v : 0.0F; });
    sums[1] += sum_in_lanes(chunk, some, [](float v) { return v < 0 ? v : 0.0F; });
    unsigned negative = 0;
    for (std::size_t i = 0; i < (some + 7) / 8; ++i)
      negative += static_cast<unsigned>(std::popcount(bits[at / 8 + i]));
    sums[2] += negative;
  }
  return sums;
}
DYN_LOOP void add_bits_loop(const std::uint8_t* bits, std::size_t count, float positive,
                            float negative, float* sum) {
  const std::uint32_t base = bits_of(positive);
  const std::uint32_t change = base ^ bits_of(negative);
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const std::uint32_t byte = bits[i / 8];
#pragma GCC ivdep
    for (std::uint32_t j = 0; j < 8; ++j)
      sum[i + j] += of_bits(base ^ (change & (0U - ((byte >> j) & 1U))));
  }
  for (; i < count; ++i) sum[i] += ((bits[i / 8] >> (i % 8)) & 1U) != 0 ? negative : positive;
}

}  // namespace dynamiccl
