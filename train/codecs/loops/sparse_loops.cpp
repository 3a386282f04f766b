#include "train/codecs/loops/sparse_loops.hpp"

#include <functional>
#include <utility>

#include "core/vocabulary/error.hpp"
#include "train/codecs/loops/loops.hpp"

namespace dynamiccl {
namespace {

// --- Selection ---------------------------------------------------------------------------------

/// Of a magnitude's bits, which order as the magnitudes do: the exponent and three more.
constexpr int kBinShift = 20;
constexpr std::size_t kBins = (0x80000000U >> kBinShift);

DYN_LOOP std::uint32_t magnitude_bits(float value) { return bits_of(value) & ~kSignBit; }

/// Values in groups: whether a group has anything to take is asked of all at once.
constexpr std::size_t kGroup = 16;

/// Places of at least this magnitude, in order.
/// @param places room for `most`
/// @returns how many there are, at most `most`
DYN_LOOP std::size_t places_loop(const float* values, std::size_t count, std::uint32_t least,
                                 std::uint32_t* places, std::size_t most) {
  std::size_t found = 0;
  const auto look = [&](std::size_t i) {
    if (magnitude_bits(values[i]) >= least && found < most)
      places[found++] = static_cast<std::uint32_t>(i);
  };
  std::size_t i = 0;
  for (; i + kGroup <= count; i += kGroup) {
    std::uint32_t any = 0;
    for (std::size_t j = 0; j < kGroup; ++j) {
      const auto below = static_cast<std::int32_t>(magnitude_bits(values[i + j])) <
                         static_cast<std::int32_t>(least);
      any |= below ? 0U : 1U;
    }
    if (any == 0) continue;
    for (std::size_t j = 0; j < kGroup; ++j) look(i + j);
  }
  for (; i < count; ++i) look(i);
  return found;
}

using Histogram = std::array<std::uint32_t, kBins>;

void count_magnitudes(const float* values, std::size_t count, Histogram& bins) {
  // Neighbours often share a bin: tables of their own, so that no increment waits for the last one.
  static thread_local std::array<Histogram, 4> tables;
  for (auto& table : tables) table.fill(0);
  std::size_t i = 0;
  for (; i + tables.size() <= count; i += tables.size())
    for (std::size_t t = 0; t < tables.size(); ++t)
      ++tables[t][magnitude_bits(values[i + t]) >> kBinShift];
  for (; i < count; ++i) ++tables[0][magnitude_bits(values[i]) >> kBinShift];
  for (std::size_t bin = 0; bin < kBins; ++bin)
    bins[bin] = tables[0][bin] + tables[1][bin] + tables[2][bin] + tables[3][bin];
}

/// The least bits of a magnitude that is in a bin which the `kept` largest reach, and how many are
/// at or above it.
std::pair<std::uint32_t, std::size_t> bin_floor(const Histogram& bins, std::size_t kept) {
  std::size_t above = 0;
  std::size_t bin = kBins;
  while (bin > 0 && above < kept) above += bins[--bin];
  return {static_cast<std::uint32_t>(bin << kBinShift), above};
}

/// Estimates from a sample a magnitude that a few more than `kept` values reach, so that only those
/// need to be sorted. It is larger than any value where sorting fewer would save nothing.
std::uint32_t sampled_floor(const float* values, std::size_t count, std::size_t kept) {
  constexpr std::size_t kStride = 61;  // no divisor of a matrix' usual width
  constexpr std::size_t kLeast = 16;   // sampled values beyond the floor
  const std::size_t sampled = count / kStride;
  const std::size_t reached = 3 * (kept / kStride) / 2 + kLeast;
  if (reached * 4 > sampled) return ~std::uint32_t{0} >> 1;
  std::vector<std::uint32_t> sizes(sampled);
  for (std::size_t i = 0; i < sampled; ++i) sizes[i] = magnitude_bits(values[i * kStride]);
  const auto at = sizes.begin() + static_cast<std::ptrdiff_t>(reached);
  std::nth_element(sizes.begin(), at, sizes.end(), std::greater<>());
  return *at;
}

}  // namespace

std::size_t store_sparse(const float* values, const std::vector<std::uint32_t>& places,
                         std::size_t kept, std::uint8_t* frame) {
  std::memcpy(frame, places.data(), kept * sizeof places[0]);
  std::uint8_t* to = frame + kept * sizeof places[0];
  for (std::size_t i = 0; i < kept; ++i) store_as(to + kNumberBytes * i, values[places[i]]);
  return 2 * kNumberBytes * kept;
}

std::size_t find_places(const float* values, std::size_t count, float least,
                        std::vector<std::uint32_t>& places) {
  if (places.size() < count) places.resize(count);
  return run_loop<places_loop>(values, count, bits_of(least), places.data(), count);
}

std::uint32_t checked_place(const std::uint8_t* places, std::size_t i, std::size_t count) {
  const auto place = load_as<std::uint32_t>(places + kNumberBytes * i);
  if (place >= count)
    throw Error(ErrorKind::data, "a sparse gradient names a place beyond its end");
  return place;
}

std::size_t encode_largest(const float* values, std::size_t count, std::size_t kept,
                           std::uint8_t* frame) {
  // Grown as it is needed and kept: selection runs for every gradient of every step.
  static thread_local std::vector<std::uint32_t> places;
  if (places.size() < count) places.resize(count);
  const std::uint32_t guess = sampled_floor(values, count, kept);
  std::size_t candidates = run_loop<places_loop>(values, count, guess, places.data(), count);
  if (candidates < kept) {
    static thread_local Histogram bins;
    count_magnitudes(values, count, bins);
    const auto [floor, all] = bin_floor(bins, kept);
    candidates = all;
    run_loop<places_loop>(values, count, floor, places.data(), candidates);
  }
  // Of those in the bins that are reached, the least magnitude that is kept, and how many equals.
  std::vector<std::uint32_t> sizes(candidates);
  for (std::size_t i = 0; i < candidates; ++i) sizes[i] = magnitude_bits(values[places[i]]);
  const auto last = sizes.begin() + static_cast<std::ptrdiff_t>(kept - 1);
  std::nth_element(sizes.begin(), last, sizes.end(), std::greater<>());
  const std::uint32_t least = *last;
  auto equals = static_cast<std::size_t>(std::count(sizes.begin(), last + 1, least));
  std::size_t taken = 0;
  for (std::size_t i = 0; i < candidates; ++i) {
    const std::uint32_t size = magnitude_bits(values[places[i]]);
    if (size < least || (size == least && equals == 0)) continue;
    if (size == least) --equals;
    places[taken++] = places[i];
  }
  return store_sparse(values, places, taken, frame);
}

void add_sparse(const std::uint8_t* frame, std::size_t kept, std::size_t count, float scale,
                float* sum) {
  const std::uint8_t* values = frame + kept * kNumberBytes;
  for (std::size_t i = 0; i < kept; ++i) {
    sum[checked_place(frame, i, count)] += scale * load_as<float>(values + kNumberBytes * i);
  }
}

std::vector<std::uint32_t> largest_places(const float* values, std::size_t count,
                                          std::size_t kept) {
  static thread_local std::vector<std::uint8_t> frame;
  frame.resize(2 * kNumberBytes * kept);
  encode_largest(values, count, kept, frame.data());
  std::vector<std::uint32_t> places(kept);
  std::memcpy(places.data(), frame.data(), kept * kNumberBytes);
  return places;
}

std::size_t store_signed_places(const float* values, const std::uint32_t* places, std::size_t kept,
                                std::uint8_t* to) {
  std::memcpy(to, places, kept * kNumberBytes);
  std::uint8_t* signs = to + kept * kNumberBytes;
  std::fill_n(signs, sign_bytes(kept), std::uint8_t{0});
  for (std::size_t i = 0; i < kept; ++i)
    if (std::signbit(values[places[i]]))
      signs[i / 8] = static_cast<std::uint8_t>(signs[i / 8] | (1U << (i % 8)));
  return kept * kNumberBytes + sign_bytes(kept);
}

void add_signed_places(const std::uint8_t* frame, std::size_t kept, std::size_t count, float scale,
                       float* sum) {
  const float size = scale * load_as<float>(frame);
  const std::uint8_t* places = frame + kNumberBytes;
  const std::uint8_t* signs = places + kept * kNumberBytes;
  for (std::size_t i = 0; i < kept; ++i) {
    const bool negative = ((signs[i / 8] >> (i % 8)) & 1) != 0;
    sum[checked_place(places, i, count)] += negative ? -size : size;
  }
}

}  // namespace dynamiccl
