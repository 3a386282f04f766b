#pragma once
// Levels that are rounded at random, a few bits each.
#include "train/codecs/loops/loops.hpp"
#include "train/codecs/loops/random_words.hpp"

namespace dynamiccl {

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

/// Levels of the norm of kQsgdBucket neighbours: the norms, then the levels.
/// @param bits of a value: 2, 4 or 8
std::size_t encode_levels(const float* values, std::size_t count, int bits, std::uint32_t key,
                          std::uint8_t* frame);
void add_levels(const std::uint8_t* frame, std::size_t count, int bits, float scale, float* sum);

}  // namespace dynamiccl
