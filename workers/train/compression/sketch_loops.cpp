// Count sketches: every value is added, with a random sign, to one random cell of each row.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/training/compression.hpp"
#include "workers/train/compression/codec_loops.hpp"
#include "workers/train/compression/loops.hpp"

namespace dynamiccl {
namespace {

struct Cell {
  std::size_t at;
  bool negative;
};

/// Where a value goes in a row.
DYN_LOOP Cell cell_of(std::size_t row, std::size_t place, std::size_t columns, std::uint32_t key) {
  const std::uint32_t word = random_word(key + static_cast<std::uint32_t>(row) * 0x85EBCA6BU,
                                         static_cast<std::uint32_t>(place));
  const auto column = static_cast<std::size_t>((std::uint64_t{word} * columns) >> 32);
  // Columns are told by the word's upper bits.
  return {row * columns + column, (word & 1U) != 0};
}

}  // namespace

void sketch_values(const float* values, std::size_t count, std::size_t columns, std::uint32_t key,
                   float* cells) {
  std::fill_n(cells, kSketchRows * columns, 0.0F);
  for (std::size_t row = 0; row < kSketchRows; ++row) {
    for (std::size_t i = 0; i < count; ++i) {
      const Cell cell = cell_of(row, i, columns, key);
      cells[cell.at] += cell.negative ? -values[i] : values[i];
    }
  }
}

float largest_cell(const float* cells, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    if (!std::isfinite(cells[i])) return std::numeric_limits<float>::infinity();
  return largest_loop(cells, count);
}

void fix_cells(float* cells, std::size_t count, double bound) {
  // Sums of all workers' stay below 2^30, and each is off by less than that part of the bound.
  const bool usable = std::isfinite(bound) && bound > 0;
  const int shift = usable ? 29 - std::ilogb(bound) : 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double fixed = usable ? std::nearbyint(std::ldexp(double{cells[i]}, shift)) : 0.0;
    store_as(reinterpret_cast<std::uint8_t*>(cells + i), static_cast<std::int32_t>(fixed));
  }
}

void heavy_places(const std::uint8_t* sums, std::size_t count, std::size_t columns,
                  std::uint32_t key, std::size_t kept, std::vector<std::uint32_t>& places) {
  static thread_local std::vector<float> guesses;
  guesses.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::array<std::int32_t, kSketchRows> found{};
    for (std::size_t row = 0; row < kSketchRows; ++row) {
      const Cell cell = cell_of(row, i, columns, key);
      const auto sum = load_as<std::int32_t>(sums + kNumberBytes * cell.at);
      found[row] = cell.negative ? -sum : sum;
    }
    std::nth_element(found.begin(), found.begin() + kSketchRows / 2, found.end());
    guesses[i] = static_cast<float>(found[kSketchRows / 2]);
  }
  static thread_local std::vector<std::uint8_t> frame;
  frame.resize(2 * kNumberBytes * kept);
  encode_largest(guesses.data(), count, kept, frame.data());
  places.resize(kept);
  std::memcpy(places.data(), frame.data(), kept * kNumberBytes);
}

}  // namespace dynamiccl
