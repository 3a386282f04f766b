#include "train/codecs/powersgd.hpp"

namespace dynamiccl {
namespace {

DYN_LOOP float dot_loop(const float* a, const float* b, std::size_t count) {
  std::array<float, kSumLanes> lanes{};
  std::size_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes)
    for (std::size_t lane = 0; lane < kSumLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  for (; i < count; ++i) lanes[0] += a[i] * b[i];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}
DYN_LOOP void add_times_loop(float* to, const float* from, float factor, std::size_t count) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) to[i] += factor * from[i];
}
DYN_LOOP void multiply_loop(const float* matrix, std::size_t rows, std::size_t columns,
                            const float* right, std::size_t rank, float* left) {
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t k = 0; k < rank; ++k)
      left[k * rows + i] = dot_loop(matrix + i * columns, right + k * columns, columns);
}
DYN_LOOP void multiply_transposed_loop(const float* matrix, std::size_t rows, std::size_t columns,
                                       const float* left, std::size_t rank, float* right) {
  std::fill_n(right, rank * columns, 0.0F);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t k = 0; k < rank; ++k)
      add_times_loop(right + k * columns, matrix + i * columns, left[k * rows + i], columns);
}
DYN_LOOP void outer_loop(const float* left, const float* right, std::size_t rows,
                         std::size_t columns, std::size_t rank, float* matrix) {
  for (std::size_t i = 0; i < rows; ++i) {
    float* row = matrix + i * columns;
    std::fill_n(row, columns, 0.0F);
    for (std::size_t k = 0; k < rank; ++k)
      add_times_loop(row, right + k * columns, left[k * rows + i], columns);
  }
}

void orthonormalise(float* columns, std::size_t rows, std::size_t rank) {
  // More than rounding leaves of a column that lies among the ones before: its direction would be
  // that of rounding, and what they have already would be said again. Kernels know the same number.
  constexpr double kNothing = 1e-4;
  for (std::size_t k = 0; k < rank; ++k) {
    float* column = columns + k * rows;
    const auto leave_others = [&] {
      for (std::size_t other = 0; other < k; ++other) {
        const float share = run_loop<dot_loop>(columns + other * rows, column, rows);
        run_loop<add_times_loop>(column, columns + other * rows, -share, rows);
      }
      return norm(column, rows);
    };
    const double before = norm(column, rows);
    const double once = leave_others();
    // What little is left has the first pass' rounding in it.
    const double left = leave_others();
    const bool nothing = once <= kNothing * before || left == 0;
    const auto factor = nothing ? 0.0F : static_cast<float>(1 / left);
    for (std::size_t i = 0; i < rows; ++i) column[i] *= factor;
  }
}

}  // namespace

PowerSgd::PowerSgd(const CodecSeat& seat) : GradientCodec(seat), right_(seat.plan.counts.size()) {}

std::size_t PowerSgd::left_floats(const CodedPart& part) const {
  return is_factored(part) ? rank() * part.rows : part.count;
}

std::size_t PowerSgd::right_floats(const CodedPart& part) const {
  return is_factored(part) ? rank() * (part.count / part.rows) : 0;
}

std::size_t PowerSgd::other_floats() const {
  std::size_t floats = 0;
  for (const auto& factor : right_) floats += factor.size();
  return floats;
}

/// All begin with the same directions. A column that found nothing, as where a gradient was zero or
/// of a lower rank, begins anew: nothing times a matrix would be nothing for ever.
void PowerSgd::draw_directions(const CodedPart& part, std::vector<float>& right) const {
  const std::size_t columns = part.count / part.rows;
  if (step() == 0) right.assign(rank() * columns, 0.0F);
  const std::uint32_t drawn = shared_key(part, step());
  for (std::size_t k = 0; k < rank(); ++k) {
    float* column = &right[k * columns];
    if (std::any_of(column, column + columns, [](float value) { return value != 0; })) continue;
    for (std::size_t i = 0; i < columns; ++i) {
      const std::uint32_t word = random_word(drawn, static_cast<std::uint32_t>(k * columns + i));
      column[i] = static_cast<float>(word) * (2.0F / 4294967296.0F) - 1.0F;
    }
  }
}

std::size_t PowerSgd::encode_left(const CodedPart& part, float* values, float* left) {
  if (is_factored(part)) {
    compensate(part, values);
    std::vector<float>& right = right_[part.gradient];
    draw_directions(part, right);
    run_loop<multiply_loop>(values, part.rows, part.count / part.rows, right.data(), rank(), left);
  } else {
    std::copy_n(values, part.count, left);
  }
  return left_floats(part);
}

std::size_t PowerSgd::encode_right(const CodedPart& part, const float* values, float* left,
                                   float* right) {
  if (is_factored(part)) {
    orthonormalise(left, part.rows, rank());
    run_loop<multiply_transposed_loop>(values, part.rows, part.count / part.rows, left, rank(),
                                       right);
  }
  return right_floats(part);
}

void PowerSgd::decode_factors(const CodedPart& part, const float* left, const float* right,
                              float* values) {
  if (!is_factored(part)) {
    std::copy_n(left, part.count, values);
    return;
  }
  std::copy_n(right, right_floats(part), right_[part.gradient].begin());
  float* kept_back = residual(part);
  if (kept_back != nullptr) std::copy_n(values, part.count, kept_back);
  run_loop<outer_loop>(left, right, part.rows, part.count / part.rows, rank(), values);
  if (kept_back == nullptr) return;
  // Each is short of the mean.
  const float share = 1.0F / static_cast<float>(workers());
  for (std::size_t i = 0; i < part.count; ++i) kept_back[i] -= share * values[i];
}

std::unique_ptr<GradientCodec> make_powersgd(const CodecSeat& seat) {
  return codec_at<PowerSgd>(seat);
}

}  // namespace dynamiccl
