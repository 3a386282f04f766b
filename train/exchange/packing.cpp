#include "train/exchange/packing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/vocabulary/error.hpp"

namespace dynamiccl {
namespace {

// Ranks are programs of one build: frames need no byte order of their own.
static_assert(std::endian::native == std::endian::little,
              "fractions are cut out of little-endian words");

constexpr std::uint32_t kWindow = 7;  ///< exponents that three bits can name; the eighth code: none
constexpr std::size_t kGroup = 8;     ///< values whose codes fill whole bytes
constexpr std::size_t kFractionBytes = 3;
constexpr std::size_t kCodeBytes = 3;  ///< of a group

struct Header {
  std::uint32_t count = 0;
  std::uint32_t escapes = 0;
  std::uint8_t base = 0;
  std::uint8_t plain = 0;
  std::uint8_t unused[2] = {};
};

/// Where the parts of a frame begin; fractions come first.
struct Layout {
  explicit Layout(std::size_t count)
      : codes(sizeof(Header) + kFractionBytes * count),
        escapes(codes + kCodeBytes * ((count + kGroup - 1) / kGroup)) {}
  std::size_t codes;
  std::size_t escapes;
};

std::uint32_t word_of(const float* value) {
  std::uint32_t word = 0;
  std::memcpy(&word, value, sizeof word);
  return word;
}

/// The lowest of the exponents that most values share; a sample of the values tells.
std::uint8_t common_exponent(const float* values, std::size_t count) {
  const std::size_t step = count >= 2048 ? 8 : 1;
  std::array<std::uint32_t, 256> times{};
  for (std::size_t i = 0; i < count; i += step) ++times[(word_of(values + i) >> 23) & 255];
  std::uint32_t inside = 0;
  std::uint32_t most = 0;
  std::size_t best = 0;
  for (std::size_t end = 0; end < times.size(); ++end) {
    inside += times[end];
    if (end >= kWindow) inside -= times[end - kWindow];
    if (inside > most) {
      most = inside;
      best = end + 1 >= kWindow ? end + 1 - kWindow : 0;
    }
  }
  return static_cast<std::uint8_t>(best);
}

/// One group's fractions and codes. Writes one byte past the fractions, which comes next.
std::uint8_t* pack_group(const float* values, std::size_t count, std::uint32_t base,
                         std::uint8_t* fractions, std::uint8_t* codes, std::uint8_t* escapes) {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t word = word_of(values + i);
    const std::uint32_t fraction = (word & 0x7fffffU) | (word >> 31 << 23);
    const std::uint32_t exponent = (word >> 23) & 255;
    const std::uint32_t code = std::min((exponent - base) & 255, kWindow);
    std::memcpy(fractions + kFractionBytes * i, &fraction, sizeof fraction);
    bits |= code << (3 * i);
    *escapes = static_cast<std::uint8_t>(exponent);
    escapes += code == kWindow ? 1 : 0;
  }
  std::memcpy(codes, &bits, kCodeBytes);
  return escapes;
}

const std::uint8_t* unpack_group(const std::uint8_t* fractions, const std::uint8_t* codes,
                                 const std::uint8_t* escapes, std::size_t count, std::uint32_t base,
                                 float* values) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, codes, kCodeBytes);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t fraction = 0;
    std::memcpy(&fraction, fractions + kFractionBytes * i, sizeof fraction);
    const std::uint32_t code = (bits >> (3 * i)) & 7;
    const bool escaped = code == kWindow;
    const std::uint32_t exponent = escaped ? *escapes : base + code;
    escapes += escaped ? 1 : 0;
    const std::uint32_t word =
        (fraction & 0x7fffffU) | ((exponent & 255) << 23) | ((fraction >> 23 & 1) << 31);
    std::memcpy(values + i, &word, sizeof word);
  }
  return escapes;
}

#if defined(__x86_64__)

bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") > 0;
  return has;
}

/// Three of every four bytes, and back.
__attribute__((target("avx2"))) __m256i fraction_bytes(bool into_frame) {
  return into_frame ? _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,  //
                                       0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1)
                    : _mm256_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1,  //
                                       0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
}

/// As pack_group() of whole groups; writes four bytes past the last fraction.
__attribute__((target("avx2"))) std::uint8_t* pack_groups_avx2(
    const float* values, std::size_t groups, std::uint32_t base, std::uint8_t* fractions,
    std::uint8_t* codes, std::uint8_t* escapes) {
  const __m256i places = _mm256_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21);
  const __m256i bytes = fraction_bytes(true);
  const __m256i window = _mm256_set1_epi32(static_cast<int>(kWindow));
  const __m256i low = _mm256_set1_epi32(255);
  for (std::size_t group = 0; group < groups; ++group) {
    const auto* from = reinterpret_cast<const __m256i*>(values + kGroup * group);
    const __m256i words = _mm256_loadu_si256(from);
    const __m256i exponents = _mm256_and_si256(_mm256_srli_epi32(words, 23), low);
    const __m256i above = _mm256_and_si256(
        _mm256_sub_epi32(exponents, _mm256_set1_epi32(static_cast<int>(base))), low);
    const __m256i code = _mm256_min_epu32(above, window);
    const __m256i fraction =
        _mm256_or_si256(_mm256_and_si256(words, _mm256_set1_epi32(0x7fffff)),
                        _mm256_and_si256(_mm256_srli_epi32(words, 8), _mm256_set1_epi32(0x800000)));
    const __m256i packed = _mm256_shuffle_epi8(fraction, bytes);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(fractions), _mm256_castsi256_si128(packed));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(fractions + 4 * kFractionBytes),
                     _mm256_extracti128_si256(packed, 1));
    const __m256i placed = _mm256_sllv_epi32(code, places);
    __m128i bits =
        _mm_or_si128(_mm256_castsi256_si128(placed), _mm256_extracti128_si256(placed, 1));
    bits = _mm_or_si128(bits, _mm_shuffle_epi32(bits, 0x4e));
    bits = _mm_or_si128(bits, _mm_shuffle_epi32(bits, 0xb1));
    const int all = _mm_cvtsi128_si32(bits);
    std::memcpy(codes, &all, kCodeBytes);
    const __m256i elsewhere = _mm256_cmpeq_epi32(code, window);
    auto mask = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(elsewhere)));
    for (; mask != 0; mask &= mask - 1) {
      const auto i = static_cast<std::size_t>(std::countr_zero(mask));
      *escapes++ = static_cast<std::uint8_t>(word_of(values + kGroup * group + i) >> 23);
    }
    fractions += kGroup * kFractionBytes;
    codes += kCodeBytes;
  }
  return escapes;
}

/// As unpack_group() of whole groups; reads four bytes past the last fraction.
__attribute__((target("avx2"))) const std::uint8_t* unpack_groups_avx2(
    const std::uint8_t* fractions, const std::uint8_t* codes, const std::uint8_t* escapes,
    std::size_t groups, std::uint32_t base, float* values) {
  const __m256i places = _mm256_setr_epi32(0, 3, 6, 9, 12, 15, 18, 21);
  const __m256i bytes = fraction_bytes(false);
  const __m256i window = _mm256_set1_epi32(static_cast<int>(kWindow));
  for (std::size_t group = 0; group < groups; ++group) {
    int bits = 0;
    std::memcpy(&bits, codes, kCodeBytes);
    const __m256i code =
        _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(bits), places), window);
    const __m256i exponent = _mm256_add_epi32(code, _mm256_set1_epi32(static_cast<int>(base)));
    const auto* second = reinterpret_cast<const __m128i*>(fractions + 4 * kFractionBytes);
    const __m256i packed = _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(fractions))),
        _mm_loadu_si128(second), 1);
    const __m256i fraction = _mm256_shuffle_epi8(packed, bytes);
    const __m256i sign =
        _mm256_slli_epi32(_mm256_and_si256(fraction, _mm256_set1_epi32(0x800000)), 8);
    const __m256i words = _mm256_or_si256(
        _mm256_or_si256(_mm256_and_si256(fraction, _mm256_set1_epi32(0x7fffff)), sign),
        _mm256_srli_epi32(_mm256_slli_epi32(exponent, 24), 1));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(values + kGroup * group), words);
    const __m256i elsewhere = _mm256_cmpeq_epi32(code, window);
    auto mask = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(elsewhere)));
    for (; mask != 0; mask &= mask - 1) {
      float* value = values + kGroup * group + static_cast<std::size_t>(std::countr_zero(mask));
      const std::uint32_t word =
          (word_of(value) & 0x807fffffU) | (static_cast<std::uint32_t>(*escapes++) << 23);
      std::memcpy(value, &word, sizeof word);
    }
    fractions += kGroup * kFractionBytes;
    codes += kCodeBytes;
  }
  return escapes;
}

#endif

/// Where the parts of a frame are written.
struct Parts {
  std::uint8_t* fractions;
  std::uint8_t* codes;
  std::uint8_t* escapes;
};

/// @returns the end of the escapes
std::uint8_t* pack_all(const float* values, std::size_t count, std::uint32_t base, Parts to,
                       [[maybe_unused]] PackLoops loops) {
  // A group writes past its fractions, where the first codes lie: the last one does so elsewhere.
  const std::size_t whole = count == 0 ? 0 : (count - 1) / kGroup;
  std::size_t done = 0;
#if defined(__x86_64__)
  if (loops == PackLoops::widest && has_avx2() && whole > 1) {
    // Four bytes past the last fraction are still the next group's.
    to.escapes = pack_groups_avx2(values, whole - 1, base, to.fractions, to.codes, to.escapes);
    done = whole - 1;
  }
#endif
  for (; done < whole; ++done)
    to.escapes = pack_group(values + kGroup * done, kGroup, base,
                            to.fractions + kGroup * kFractionBytes * done,
                            to.codes + kCodeBytes * done, to.escapes);
  const std::size_t rest = count - kGroup * whole;
  std::array<std::uint8_t, kFractionBytes * kGroup + 1> last{};
  to.escapes = pack_group(values + kGroup * whole, rest, base, last.data(),
                          to.codes + kCodeBytes * whole, to.escapes);
  std::memcpy(to.fractions + kGroup * kFractionBytes * whole, last.data(), kFractionBytes * rest);
  return to.escapes;
}

/// @returns the end of the escapes
const std::uint8_t* unpack_all(const std::uint8_t* from, const Layout& at, std::size_t count,
                               std::uint32_t base, float* values,
                               [[maybe_unused]] PackLoops loops) {
  const std::uint8_t* fractions = from + sizeof(Header);
  const std::uint8_t* codes = from + at.codes;
  const std::uint8_t* escapes = from + at.escapes;
  const std::size_t whole = count / kGroup;
  std::size_t done = 0;
#if defined(__x86_64__)
  if (loops == PackLoops::widest && has_avx2() && whole > 1) {
    escapes = unpack_groups_avx2(fractions, codes, escapes, whole - 1, base, values);
    done = whole - 1;
  }
#endif
  for (; done < (count + kGroup - 1) / kGroup; ++done)
    escapes =
        unpack_group(fractions + kGroup * kFractionBytes * done, codes + kCodeBytes * done, escapes,
                     std::min(kGroup, count - kGroup * done), base, values + kGroup * done);
  return escapes;
}

}  // namespace

std::size_t packed_limit(std::size_t count) {
  // While it is packed each value may turn out to lie elsewhere; a frame of no value still gets the
  // codes of its empty group.
  return Layout(count).escapes + count + sizeof(std::uint32_t);
}

std::size_t pack_exponents(const float* values, std::size_t count, std::uint8_t* to,
                           PackLoops loops) {
  const Layout at(count);
  Header header;
  header.count = static_cast<std::uint32_t>(count);
  header.base = common_exponent(values, count);
  std::uint8_t* escapes = pack_all(values, count, header.base,
                                   {to + sizeof header, to + at.codes, to + at.escapes}, loops);
  const auto bytes = static_cast<std::size_t>(escapes - to);
  header.escapes = static_cast<std::uint32_t>(bytes - at.escapes);
  header.plain = bytes >= sizeof header + count * sizeof(float) ? 1 : 0;
  std::memcpy(to, &header, sizeof header);
  if (header.plain == 0) return bytes;
  if (count > 0) std::memcpy(to + sizeof header, values, count * sizeof(float));
  return sizeof header + count * sizeof(float);
}

void unpack_exponents(const std::uint8_t* from, std::size_t count, float* values, PackLoops loops) {
  const Layout at(count);
  Header header;
  std::memcpy(&header, from, sizeof header);
  if (header.count != count)
    throw Error(ErrorKind::data,
                fmt::format("packed gradients: a frame of {} values came where {} were due: the "
                            "ranks do not run the same plan",
                            header.count, count));
  if (header.plain != 0) {
    if (count > 0) std::memcpy(values, from + sizeof header, count * sizeof(float));
    return;
  }
  const std::uint8_t* escapes = unpack_all(from, at, count, header.base, values, loops);
  if (static_cast<std::size_t>(escapes - from) != at.escapes + header.escapes)
    throw Error(ErrorKind::data, "packed gradients: a frame is damaged");
}

}  // namespace dynamiccl
