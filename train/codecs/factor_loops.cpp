#include "train/codecs/codec_loops.hpp"

#include "train/codecs/loops.hpp"

namespace dynamiccl {
namespace {

// --- Factors -----------------------------------------------------------------------------------

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

}  // namespace

double norm(const float* values, std::size_t count) {
  return std::sqrt(run_loop<squares_loop>(values, count));
}

void multiply(const float* matrix, std::size_t rows, std::size_t columns, const float* right,
              std::size_t rank, float* left) {
  run_loop<multiply_loop>(matrix, rows, columns, right, rank, left);
}
void multiply_transposed(const float* matrix, std::size_t rows, std::size_t columns,
                         const float* left, std::size_t rank, float* right) {
  run_loop<multiply_transposed_loop>(matrix, rows, columns, left, rank, right);
}
void outer_product(const float* left, const float* right, std::size_t rows, std::size_t columns,
                   std::size_t rank, float* matrix) {
  run_loop<outer_loop>(left, right, rows, columns, rank, matrix);
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

}  // namespace dynamiccl
