#include "train/codecs/sketch.hpp"

#include "train/codecs/loops/sparse_loops.hpp"

namespace dynamiccl {
namespace {

/// Values whose cells are sent at once: of one row, then of the next.
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

std::size_t Sketch::other_floats() const {
  std::size_t floats = 0;
  for (const auto& [offset, places] : places_) floats += places.size();
  return floats;
}

std::size_t Sketch::cells(const CodedPart& part) const {
  return is_sketched(part) ? kSketchRows * sketch_columns(settings(), part.count, step()) : 0;
}

std::size_t Sketch::found(const CodedPart& part) const {
  return is_sketched(part) ? kept(part, step()) : part.count;
}

std::size_t Sketch::encode_sketch(const CodedPart& part, float* values, float* to) {
  if (!is_sketched(part)) return 0;
  compensate(part, values);
  std::fill_n(to, cells(part), 0.0F);
  run_loop<add_values>(values, part.count, cells(part) / kSketchRows, shared_key(part, step()), to);
  return cells(part);
}

std::size_t Sketch::encode_found(const CodedPart& part, const float* values, const float* sums,
                                 float* exact) {
  if (!is_sketched(part)) {
    std::copy_n(values, part.count, exact);
    return part.count;
  }
  static thread_local std::vector<float> guesses;
  guesses.resize(part.count);
  run_loop<guess_values>(reinterpret_cast<const std::uint8_t*>(sums), part.count,
                         cells(part) / kSketchRows, shared_key(part, step()), guesses.data());
  std::vector<std::uint32_t>& places = places_[part.offset];
  places = largest_places(guesses.data(), part.count, found(part));
  float* kept_back = residual(part);
  if (kept_back != nullptr) std::copy_n(values, part.count, kept_back);
  for (std::size_t i = 0; i < places.size(); ++i) {
    exact[i] = values[places[i]];
    if (kept_back != nullptr) kept_back[places[i]] = 0;
  }
  return places.size();
}

void Sketch::decode_found(const CodedPart& part, const float* exact, float* values) const {
  if (!is_sketched(part)) {
    std::copy_n(exact, part.count, values);
    return;
  }
  const std::vector<std::uint32_t>& places = places_.at(part.offset);
  std::fill_n(values, part.count, 0.0F);
  for (std::size_t i = 0; i < places.size(); ++i) values[places[i]] = exact[i];
}

std::unique_ptr<GradientCodec> make_sketch(const CodecSeat& seat) { return codec_at<Sketch>(seat); }

}  // namespace dynamiccl
