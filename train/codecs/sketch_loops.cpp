// Count sketches: every value is added, with a random sign, to one random cell of each row.
#include <algorithm>
#include <array>
#include <cmath>

#include "train/codecs/codec_loops.hpp"
#include "train/codecs/loops.hpp"
#include "train/spec/compression.hpp"

namespace dynamiccl {
namespace {

/// Values whose cells are told at once: of one row, then of the next.
constexpr std::size_t kBlock = 512;
using Words = std::array<std::uint32_t, kBlock>;

/// What says where values from `first` on go in a row: the upper bits the column, the last one the
/// sign.
DYN_LOOP void draw_words(Words& words, std::size_t row, std::size_t first, std::size_t some,
                         std::uint32_t key) {
  const std::uint32_t row_key = key + static_cast<std::uint32_t>(row) * 0x85EBCA6BU;
  const auto place = static_cast<std::uint32_t>(first);
  for (std::size_t i = 0; i < some; ++i)
    words[i] = random_word(row_key, place + static_cast<std::uint32_t>(i));
}
DYN_LOOP std::size_t column_of(std::uint32_t word, std::size_t columns) {
  return static_cast<std::size_t>((std::uint64_t{word} * columns) >> 32);
}

DYN_LOOP void add_values(const float* values, std::size_t count, std::size_t columns,
                         std::uint32_t key, float* cells) {
  Words words;
  for (std::size_t first = 0; first < count; first += kBlock) {
    const std::size_t some = std::min(kBlock, count - first);
    for (std::size_t row = 0; row < kSketchRows; ++row) {
      draw_words(words, row, first, some, key);
      float* cells_of_row = cells + row * columns;
      for (std::size_t i = 0; i < some; ++i)
        cells_of_row[column_of(words[i], columns)] +=
            of_bits(bits_of(values[first + i]) ^ (words[i] << 31));
    }
  }
}

DYN_LOOP std::int32_t median_of_three(std::int32_t a, std::int32_t b, std::int32_t c) {
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

/// Medians of what the rows say of each value.
DYN_LOOP void guess_values(const std::uint8_t* sums, std::size_t count, std::size_t columns,
                           std::uint32_t key, float* guesses) {
  static_assert(kSketchRows == 5, "the median below is that of five");
  Words words;
  std::array<std::array<std::int32_t, kBlock>, kSketchRows> found;
  for (std::size_t first = 0; first < count; first += kBlock) {
    const std::size_t some = std::min(kBlock, count - first);
    for (std::size_t row = 0; row < kSketchRows; ++row) {
      draw_words(words, row, first, some, key);
      const std::uint8_t* sums_of_row = sums + kNumberBytes * row * columns;
      for (std::size_t i = 0; i < some; ++i) {
        const auto sum =
            load_as<std::int32_t>(sums_of_row + kNumberBytes * column_of(words[i], columns));
        found[row][i] = (words[i] & 1U) != 0 ? -sum : sum;
      }
    }
    const auto& [a, b, c, d, e] = found;
    for (std::size_t i = 0; i < some; ++i)
      guesses[first + i] = static_cast<float>(
          median_of_three(std::max(std::min(a[i], b[i]), std::min(c[i], d[i])),
                          std::min(std::max(a[i], b[i]), std::max(c[i], d[i])), e[i]));
  }
}

constexpr std::uint32_t kInfinite = 0x7F800000U;
DYN_LOOP bool is_number(float value) { return (bits_of(value) & ~kSignBit) < kInfinite; }

DYN_LOOP void fix_loop(float* cells, std::size_t count, double unit) {
  for (std::size_t i = 0; i < count; ++i) {
    const double fixed = std::nearbyint(unit * double{cells[i]});
    store_as(reinterpret_cast<std::uint8_t*>(cells + i), static_cast<std::int32_t>(fixed));
  }
}

}  // namespace

void sketch_values(const float* values, std::size_t count, std::size_t columns, std::uint32_t key,
                   float* cells) {
  std::fill_n(cells, kSketchRows * columns, 0.0F);
  run_loop<add_values>(values, count, columns, key, cells);
}

float largest_cell(const float* cells, std::size_t count) {
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < count; ++i) most = std::max(most, bits_of(cells[i]) & ~kSignBit);
  return of_bits(std::min(most, kInfinite));
}

void fix_cells(float* cells, std::size_t count, double bound) {
  if (!std::isfinite(bound)) {
    for (std::size_t i = 0; i < count; ++i)
      store_as(reinterpret_cast<std::uint8_t*>(cells + i),
               std::int32_t{is_number(cells[i]) ? 0 : 1});
    return;
  }
  // Sums of all workers' stay below 2^30, and each is off by less than that part of the bound.
  const double unit = bound > 0 ? std::ldexp(1.0, 29 - std::ilogb(bound)) : 0.0;
  run_loop<fix_loop>(cells, count, unit);
}

void heavy_places(const std::uint8_t* sums, std::size_t count, std::size_t columns,
                  std::uint32_t key, std::size_t kept, std::vector<std::uint32_t>& places) {
  static thread_local std::vector<float> guesses;
  guesses.resize(count);
  run_loop<guess_values>(sums, count, columns, key, guesses.data());
  static thread_local std::vector<std::uint8_t> frame;
  frame.resize(2 * kNumberBytes * kept);
  encode_largest(guesses.data(), count, kept, frame.data());
  places.resize(kept);
  std::memcpy(places.data(), frame.data(), kept * kNumberBytes);
}

}  // namespace dynamiccl
