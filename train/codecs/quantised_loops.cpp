#include "train/codecs/codec_loops.hpp"

#include "train/codecs/loops.hpp"
#include "train/spec/compression.hpp"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace dynamiccl {
namespace {

// --- 16 bits ----------------------------------------------------------------------------------

DYN_LOOP void float16_loop(const float* values, std::size_t count, std::uint8_t* frame) {
  for (std::size_t i = 0; i < count; ++i) store_as(frame + 2 * i, static_cast<_Float16>(values[i]));
}
DYN_LOOP void from_float16_loop(const std::uint8_t* frame, std::size_t count, float* values) {
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(load_as<_Float16>(frame + 2 * i));
}
DYN_LOOP void bfloat16_loop(const float* values, std::size_t count, std::uint8_t* frame) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = bits_of(values[i]);
    const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
    // A NaN must not round up into infinity.
    const bool nan = (bits & ~kSignBit) > 0x7F800000U;
    store_as(frame + 2 * i, static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40U : rounded));
  }
}
DYN_LOOP void from_bfloat16_loop(const std::uint8_t* frame, std::size_t count, float* values) {
  for (std::size_t i = 0; i < count; ++i)
    values[i] = of_bits(static_cast<std::uint32_t>(load_as<std::uint16_t>(frame + 2 * i)) << 16);
}

// --- Eight bits --------------------------------------------------------------------------------

/// Adding it leaves a float's whole part, rounded to the nearest, in the lowest bits.
constexpr float kRoundingShift = 12582912.0F;

DYN_LOOP void int8_loop(const float* values, std::size_t count, float inverse,
                        std::uint8_t* levels) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i)
    levels[i] = static_cast<std::uint8_t>(bits_of(values[i] * inverse + kRoundingShift));
}
DYN_LOOP void add_int8_loop(const std::uint8_t* levels, std::size_t count, float step, float* sum) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i)
    sum[i] += step * static_cast<float>(static_cast<std::int8_t>(levels[i]));
}

// --- One bit -----------------------------------------------------------------------------------

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
DYN_LOOP void vote_loop(float* sum, std::size_t count, float workers) {
  for (std::size_t i = 0; i < count; ++i)
    sum[i] = sum[i] > 0 ? workers : sum[i] < 0 ? -workers : 0.0F;
}

// --- Stochastic levels -------------------------------------------------------------------------

/// Uniform in [0, 1), of 24 bits.
DYN_LOOP float uniform(std::uint32_t key, std::size_t place) {
  return static_cast<float>(random_word(key, static_cast<std::uint32_t>(place)) >> 8) *
         (1.0F / 16777216.0F);
}

/// So many codes are made before they are packed.
constexpr std::size_t kCodes = 1024;

/// One byte each, of which the lowest `bits` count, into bits * kCodes / 8 bytes.
DYN_LOOP void pack_codes(const std::uint8_t* codes, std::size_t count, int bits,
                         std::uint8_t* packed) {
  if (bits == 8) {
    std::memcpy(packed, codes, count);
  } else if (bits == 4) {
    for (std::size_t i = 0; i < (count + 1) / 2; ++i) {
      const auto pair = load_as<std::uint16_t>(codes + 2 * i);
      packed[i] = static_cast<std::uint8_t>(pair | (pair >> 4));
    }
  } else {
    for (std::size_t i = 0; i < (count + 3) / 4; ++i) {
      const auto four = load_as<std::uint32_t>(codes + 4 * i);
      packed[i] = static_cast<std::uint8_t>(four | (four >> 6) | (four >> 12) | (four >> 18));
    }
  }
}
DYN_LOOP void unpack_codes(const std::uint8_t* packed, std::size_t count, int bits,
                           std::uint8_t* codes) {
  if (bits == 8) {
    std::memcpy(codes, packed, count);
  } else if (bits == 4) {
    for (std::size_t i = 0; i < (count + 1) / 2; ++i) {
      const std::uint32_t byte = packed[i];
      store_as(codes + 2 * i, static_cast<std::uint16_t>((byte | (byte << 4)) & 0x0F0FU));
    }
  } else {
    for (std::size_t i = 0; i < (count + 3) / 4; ++i) {
      const std::uint32_t byte = packed[i];
      store_as(codes + 4 * i, (byte | (byte << 6) | (byte << 12) | (byte << 18)) & 0x03030303U);
    }
  }
}

using Codes = std::array<std::uint8_t, kCodes>;

/// A level from -most to most, `most` added to it: |value| x factor is rounded up by chance.
DYN_LOOP void levels_loop(const float* values, std::size_t count, float factor, std::uint32_t key,
                          std::size_t place, int most, std::uint8_t* codes) {
  const auto limit = static_cast<float>(most);
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
    const float size = std::fabs(values[i]) * factor;
    const float held = size < limit ? size : limit;
    const auto level = static_cast<std::int32_t>(held + uniform(key, place + i));
    const std::int32_t kept = level < most ? level : most;
    codes[i] = static_cast<std::uint8_t>(most + (values[i] < 0 ? -kept : kept));
  }
}
DYN_LOOP void add_levels_loop(const std::uint8_t* codes, std::size_t count, float step, int most,
                              float* sum) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i)
    sum[i] += step * static_cast<float>(static_cast<std::int32_t>(codes[i]) - most);
}
/// Sum of squares and largest magnitude, in one pass over memory.
DYN_LOOP std::array<double, 2> spread_loop(const float* values, std::size_t count) {
  std::array<double, 2> found{};
  for (std::size_t at = 0; at < count; at += kSumChunk) {
    const std::size_t some = std::min(kSumChunk, count - at);
    found[0] += squares_loop(values + at, some);
    found[1] = std::max<double>(found[1], largest_loop(values + at, some));
  }
  return found;
}
DYN_LOOP void ternary_loop(const float* values, std::size_t count, float inverse, std::uint32_t key,
                           std::uint8_t* packed) {
  Codes codes;
  for (std::size_t at = 0; at < count; at += kCodes) {
    const std::size_t some = std::min(kCodes, count - at);
    if (some < kCodes) codes.fill(0);
    levels_loop(values + at, some, inverse, key, at, 1, codes.data());
    pack_codes(codes.data(), some, 2, packed + at / 4);
  }
}
DYN_LOOP void add_ternary_loop(const std::uint8_t* packed, std::size_t count, float step,
                               float* sum) {
  Codes codes;
  for (std::size_t at = 0; at < count; at += kCodes) {
    const std::size_t some = std::min(kCodes, count - at);
    unpack_codes(packed + at / 4, some, 2, codes.data());
    add_levels_loop(codes.data(), some, step, 1, sum + at);
  }
}
DYN_LOOP void qsgd_loop(const float* values, std::size_t count, int bits, std::uint32_t key,
                        std::uint8_t* norms, std::uint8_t* packed) {
  static_assert(kQsgdBucket <= kCodes);
  Codes codes;
  const int most = (1 << (bits - 1)) - 1;
  const auto width = static_cast<std::size_t>(bits);
  for (std::size_t at = 0; at < count; at += kQsgdBucket) {
    const std::size_t some = std::min(kQsgdBucket, count - at);
    const auto length = static_cast<float>(std::sqrt(squares_loop(values + at, some)));
    store_as(norms + 4 * (at / kQsgdBucket), length);
    if (some < kQsgdBucket) codes.fill(0);
    const float factor = length > 0 ? static_cast<float>(most) / length : 0.0F;
    levels_loop(values + at, some, factor, key, at, most, codes.data());
    pack_codes(codes.data(), some, bits, packed + at * width / 8);
  }
}
DYN_LOOP void add_qsgd_loop(const std::uint8_t* norms, const std::uint8_t* packed,
                            std::size_t count, int bits, float scale, float* sum) {
  Codes codes;
  const int most = (1 << (bits - 1)) - 1;
  const auto width = static_cast<std::size_t>(bits);
  for (std::size_t at = 0; at < count; at += kQsgdBucket) {
    const std::size_t some = std::min(kQsgdBucket, count - at);
    unpack_codes(packed + at * width / 8, some, bits, codes.data());
    const float step =
        scale * load_as<float>(norms + 4 * (at / kQsgdBucket)) / static_cast<float>(most);
    add_levels_loop(codes.data(), some, step, most, sum + at);
  }
}

// --- Powers of two -----------------------------------------------------------------------------

constexpr std::int32_t kPowers = 127;  ///< a sign and so many exponents make a byte, 0 is zero

DYN_LOOP void powers_loop(const float* values, std::size_t count, std::int32_t most,
                          std::uint32_t key, std::uint8_t* bytes) {
  const std::int32_t base = most - kPowers;
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = bits_of(values[i]);
    // The fraction is the chance of the next power: a random one overflows into it as often.
    const std::uint32_t chance = random_word(key, static_cast<std::uint32_t>(i)) >> 9;
    const auto exponent = static_cast<std::int32_t>(((bits & ~kSignBit) + chance) >> 23);
    const std::int32_t above = exponent - base;
    const std::int32_t kept = exponent > 0 && above > 0 ? above : 0;
    bytes[i] = static_cast<std::uint8_t>(static_cast<std::uint32_t>(kept) | ((bits >> 24) & 0x80U));
  }
}
DYN_LOOP void add_powers_loop(const std::uint8_t* bytes, std::size_t count, std::int32_t most,
                              float scale, float* sum) {
  const std::int32_t base = most - kPowers;
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t above = bytes[i] & 0x7F;
    const auto magnitude = static_cast<std::uint32_t>(above > 0 ? above + base : 0) << 23;
    sum[i] += scale * of_bits(magnitude | ((bytes[i] & 0x80U) << 24));
  }
}

}  // namespace

std::size_t encode_float16(const float* values, std::size_t count, std::uint8_t* frame) {
  run_loop<float16_loop>(values, count, frame);
  return 2 * count;
}
void decode_float16(const std::uint8_t* frame, std::size_t count, float* values) {
  run_loop<from_float16_loop>(frame, count, values);
}
std::size_t encode_bfloat16(const float* values, std::size_t count, std::uint8_t* frame) {
  run_loop<bfloat16_loop>(values, count, frame);
  return 2 * count;
}
void decode_bfloat16(const std::uint8_t* frame, std::size_t count, float* values) {
  run_loop<from_bfloat16_loop>(frame, count, values);
}

std::size_t encode_int8(const float* values, std::size_t count, std::uint8_t* frame) {
  constexpr float kMost = 127;
  const float step = run_loop<largest_loop>(values, count) / kMost;
  store_as(frame, step);
  run_loop<int8_loop>(values, count, step > 0 ? 1 / step : 0.0F, frame + kNumberBytes);
  return kNumberBytes + count;
}
void add_int8(const std::uint8_t* frame, std::size_t count, float scale, float* sum) {
  run_loop<add_int8_loop>(frame + kNumberBytes, count, scale * load_as<float>(frame), sum);
}

std::size_t encode_onebit(const float* values, std::size_t count, std::uint8_t* frame) {
  const auto sums = run_loop<signs_and_sums_loop>(values, count, frame + 2 * kNumberBytes);
  const double positive = static_cast<double>(count) - sums[2];
  store_as(frame, static_cast<float>(positive > 0 ? sums[0] / positive : 0));
  store_as(frame + kNumberBytes, static_cast<float>(sums[2] > 0 ? sums[1] / sums[2] : 0));
  return 2 * kNumberBytes + (count + 7) / 8;
}
void add_onebit(const std::uint8_t* frame, std::size_t count, float scale, float* sum) {
  run_loop<add_bits_loop>(frame + 2 * kNumberBytes, count, scale * load_as<float>(frame),
                          scale * load_as<float>(frame + kNumberBytes), sum);
}
std::size_t encode_scaled_signs(const float* values, std::size_t count, std::uint8_t* frame) {
  const auto sums = run_loop<signs_and_sums_loop>(values, count, frame + kNumberBytes);
  store_as(frame, static_cast<float>((sums[0] - sums[1]) /
                                     static_cast<double>(std::max<std::size_t>(count, 1))));
  return kNumberBytes + (count + 7) / 8;
}
void add_scaled_signs(const std::uint8_t* frame, std::size_t count, float scale, float* sum) {
  const float size = scale * load_as<float>(frame);
  run_loop<add_bits_loop>(frame + kNumberBytes, count, size, -size, sum);
}
std::size_t encode_signs(const float* values, std::size_t count, std::uint8_t* frame) {
  run_loop<signs_loop>(values, count, frame);
  return (count + 7) / 8;
}
void add_signs(const std::uint8_t* frame, std::size_t count, float scale, float* sum) {
  run_loop<add_bits_loop>(frame, count, scale, -scale, sum);
}
void take_vote(float* sum, std::size_t count, int workers) {
  run_loop<vote_loop>(sum, count, static_cast<float>(workers));
}

std::size_t encode_ternary(const float* values, std::size_t count, std::uint32_t key,
                           std::uint8_t* frame) {
  constexpr double kDeviations = 2.5;
  const auto [squares, most] = run_loop<spread_loop>(values, count);
  const double spread = std::sqrt(squares / static_cast<double>(std::max<std::size_t>(count, 1)));
  const auto largest = static_cast<float>(std::min(most, kDeviations * spread));
  store_as(frame, largest);
  run_loop<ternary_loop>(values, count, largest > 0 ? 1 / largest : 0.0F, key,
                         frame + kNumberBytes);
  return kNumberBytes + (count + 3) / 4;
}
void add_ternary(const std::uint8_t* frame, std::size_t count, float scale, float* sum) {
  run_loop<add_ternary_loop>(frame + kNumberBytes, count, scale * load_as<float>(frame), sum);
}

std::size_t encode_levels(const float* values, std::size_t count, int bits, std::uint32_t key,
                          std::uint8_t* frame) {
  const std::size_t norms = kNumberBytes * ((count + kQsgdBucket - 1) / kQsgdBucket);
  run_loop<qsgd_loop>(values, count, bits, key, frame, frame + norms);
  return norms + (count * static_cast<std::size_t>(bits) + 7) / 8;
}
void add_levels(const std::uint8_t* frame, std::size_t count, int bits, float scale, float* sum) {
  const std::size_t norms = kNumberBytes * ((count + kQsgdBucket - 1) / kQsgdBucket);
  run_loop<add_qsgd_loop>(frame, frame + norms, count, bits, scale, sum);
}

std::size_t encode_powers(const float* values, std::size_t count, std::uint32_t key,
                          std::uint8_t* frame) {
  const auto most =
      static_cast<std::int32_t>(bits_of(run_loop<largest_loop>(values, count)) >> 23) + 1;
  store_as(frame, most);
  run_loop<powers_loop>(values, count, most, key, frame + kNumberBytes);
  return kNumberBytes + count;
}
void add_powers(const std::uint8_t* frame, std::size_t count, float scale, float* sum) {
  run_loop<add_powers_loop>(frame + kNumberBytes, count, load_as<std::int32_t>(frame), scale, sum);
}

}  // namespace dynamiccl
