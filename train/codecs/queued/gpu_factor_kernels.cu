// Two factors of low rank in a matrix's place.
#include "train/codecs/queued/gpu_kernels_base.cuh"

namespace dynamiccl::kernels {
namespace {

// --- Factors -----------------------------------------------------------------------------------

/// A stretch of a part that is not factored goes from one buffer to another.
__device__ void copy_chunk(const Chunk& chunk, const float* from, float* to) {
  for (std::uint32_t i = threadIdx.x; i < chunk.count; i += kThreads) to[i] = from[i];
}
/// Rows or columns shared among a part's blocks, `of` threads for each.
template <class Each>
__device__ void of_lines(const PartRow& part, std::uint32_t lines, std::uint32_t of, Each each) {
  const std::uint32_t block = static_cast<std::uint32_t>(blockIdx.x) - part.first_chunk;
  const std::uint32_t at_once = kThreads / of;
  const std::uint32_t turns = (lines + at_once - 1) / at_once;
  for (std::uint32_t turn = block; turn < turns; turn += part.chunks)
    each(turn * at_once + threadIdx.x / of, threadIdx.x % of);
}
/// Sixteen lanes of a dot product, then all of them in order: as loops.hpp's.
__device__ float dot_of_lanes(const float* lanes) {
  float sum = 0;
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) sum += lanes[lane];
  return sum;
}
__device__ float dot_lane(const float* a, const float* b, std::uint32_t count, std::uint32_t lane) {
  const std::uint32_t full = count / kLanes * kLanes;
  float sum = 0;
  for (std::uint32_t i = lane; i < full; i += kLanes) sum += a[i] * b[i];
  if (lane == 0)
    for (std::uint32_t i = full; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

/// Columns that hold nothing, or all of them, get directions that all workers draw alike; a block
/// for each part.
__global__ void draw_right_kernel(Factors factors, bool all, std::uint64_t key,
                                  MessageTable table) {
  __shared__ int found;
  const PartRow part = table.parts[blockIdx.x];
  if (part.rows == 0) return;
  const std::uint32_t columns = part.count / part.rows;
  const auto own = static_cast<std::uint32_t>(splitmix64_of(key + part.offset) >> 32);
  for (std::uint32_t k = 0; k < static_cast<std::uint32_t>(factors.rank); ++k) {
    float* column = factors.right + part.right + k * columns;
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    if (!all)
      for (std::uint32_t i = threadIdx.x; i < columns; i += kThreads)
        if (column[i] != 0) found = 1;
    __syncthreads();
    if (found == 0)
      for (std::uint32_t i = threadIdx.x; i < columns; i += kThreads)
        column[i] =
            static_cast<float>(random_word(own, k * columns + i)) * (2.0F / 4294967296.0F) - 1.0F;
    __syncthreads();
  }
}
__global__ void compensate_factored_kernel(float* values, const float* residual,
                                           MessageTable table) {
  const Chunk chunk = own_chunk(table);
  if (chunk.part.rows == 0) return;
  for (std::uint32_t i = threadIdx.x; i < chunk.count; i += kThreads)
    values[chunk.at + i] += residual[chunk.at + i];
}
__global__ void multiply_kernel(const float* values, Factors factors, MessageTable table) {
  __shared__ float lanes[kThreads / kLanes][kLanes];
  const Chunk chunk = own_chunk(table);
  const PartRow part = chunk.part;
  if (part.rows == 0)
    return copy_chunk(chunk, values + chunk.at, factors.left + part.left + chunk.start);
  const std::uint32_t columns = part.count / part.rows;
  const std::uint32_t lines = part.rows * static_cast<std::uint32_t>(factors.rank);
  of_lines(part, lines, kLanes, [&](std::uint32_t line, std::uint32_t lane) {
    // Ranks of a row side by side: they read the same values.
    const auto rank = static_cast<std::uint32_t>(factors.rank);
    const std::uint32_t row = line / rank;
    const std::uint32_t k = line % rank;
    if (line < lines)
      lanes[threadIdx.x / kLanes][lane] =
          dot_lane(values + part.offset + static_cast<std::uint64_t>(row) * columns,
                   factors.right + part.right + k * columns, columns, lane);
    __syncthreads();
    if (line < lines && lane == 0)
      factors.left[part.left + k * part.rows + row] = dot_of_lanes(lanes[threadIdx.x / kLanes]);
    __syncthreads();
  });
}

/// Root of a sum of squares as loops.hpp's norm(), by a block; the first thread's counts.
__device__ double norm_by_block(const float* values, std::uint32_t count) {
  __shared__ float lanes[kLanes];
  double sum = 0;
  for (std::uint32_t at = 0; at < count; at += kChunk) {
    __syncthreads();
    if (threadIdx.x < kLanes)
      lanes[threadIdx.x] = lane_sum(values + at, smaller(kChunk, count - at), threadIdx.x,
                                    [](float v) { return v * v; });
    __syncthreads();
    // One sum over all lanes of all chunks.
    if (threadIdx.x == 0)
      for (std::uint32_t lane = 0; lane < kLanes; ++lane) sum += lanes[lane];
  }
  return sqrt(sum);
}
/// Takes away what a column has of those before it, by a block; the first thread's counts.
__device__ double leave_others(float* columns, std::uint32_t rows, int k) {
  __shared__ float lanes[kLanes];
  __shared__ float share;
  const unsigned t = threadIdx.x;
  float* column = columns + static_cast<std::uint32_t>(k) * rows;
  for (int other = 0; other < k; ++other) {
    const float* one = columns + static_cast<std::uint32_t>(other) * rows;
    __syncthreads();
    if (t < kLanes) lanes[t] = dot_lane(one, column, rows, t);
    __syncthreads();
    if (t == 0) share = -dot_of_lanes(lanes);
    __syncthreads();
    for (std::uint32_t i = t; i < rows; i += kThreads) column[i] += share * one[i];
    __syncthreads();
  }
  return norm_by_block(column, rows);
}
/// Gram-Schmidt over a left factor's columns, twice, a block for each part.
__global__ void orthonormalise_kernel(Factors factors, MessageTable table) {
  __shared__ float factor;
  const PartRow part = table.parts[blockIdx.x];
  if (part.rows == 0) return;
  float* columns = factors.left + part.left;
  const unsigned t = threadIdx.x;
  for (int k = 0; k < factors.rank; ++k) {
    float* column = columns + static_cast<std::uint32_t>(k) * part.rows;
    const double before = norm_by_block(column, part.rows);
    const double once = leave_others(columns, part.rows, k);
    const double left = leave_others(columns, part.rows, k);
    if (t == 0) factor = once <= 1e-4 * before || left == 0 ? 0.0F : static_cast<float>(1 / left);
    __syncthreads();
    for (std::uint32_t i = t; i < part.rows; i += kThreads) column[i] *= factor;
    __syncthreads();
  }
}
__global__ void multiply_transposed_kernel(const float* values, Factors factors,
                                           MessageTable table) {
  const PartRow part = table.parts[table.chunks[blockIdx.x].part];
  if (part.rows == 0) return;
  const std::uint32_t columns = part.count / part.rows;
  const std::uint32_t lines = columns * static_cast<std::uint32_t>(factors.rank);
  of_lines(part, lines, 1, [&](std::uint32_t line, std::uint32_t) {
    if (line >= lines) return;
    const std::uint32_t column = line % columns;
    const float* left = factors.left + part.left + line / columns * part.rows;
    const float* from = values + part.offset + column;
    float sum = 0;
    for (std::uint32_t row = 0; row < part.rows; ++row)
      sum += left[row] * from[static_cast<std::uint64_t>(row) * columns];
    factors.right[part.right + line] = sum;
  });
}
__global__ void outer_product_kernel(float* values, float* residual, float share, Factors factors,
                                     MessageTable table) {
  const Chunk chunk = own_chunk(table);
  const PartRow part = chunk.part;
  if (part.rows == 0)
    return copy_chunk(chunk, factors.left + part.left + chunk.start, values + chunk.at);
  const std::uint32_t columns = part.count / part.rows;
  for (std::uint32_t i = threadIdx.x; i < chunk.count; i += kThreads) {
    const std::uint32_t row = (chunk.start + i) / columns;
    const std::uint32_t column = (chunk.start + i) % columns;
    float sum = 0;
    for (std::uint32_t k = 0; k < static_cast<std::uint32_t>(factors.rank); ++k)
      sum += factors.left[part.left + k * part.rows + row] *
             factors.right[part.right + k * columns + column];
    if (residual != nullptr) residual[chunk.at + i] = values[chunk.at + i] - share * sum;
    values[chunk.at + i] = sum;
  }
}

}  // namespace

const char* draw_right(const Factors& factors, bool all, std::uint64_t key,
                       const MessageTable& table, void* stream) {
  return launch(draw_right_kernel, table.part_count, stream, factors, all, key, table);
}
const char* encode_left(float* values, const float* residual, const Factors& factors,
                        const MessageTable& table, void* stream) {
  Launches launches;
  if (residual != nullptr)
    launches(compensate_factored_kernel, table.chunk_count, stream, values, residual, table);
  launches(multiply_kernel, table.chunk_count, stream, values, factors, table);
  return launches.failure();
}
const char* encode_right(const float* values, const Factors& factors, const MessageTable& table,
                         void* stream) {
  Launches launches;
  launches(orthonormalise_kernel, table.part_count, stream, factors, table);
  launches(multiply_transposed_kernel, table.chunk_count, stream, values, factors, table);
  return launches.failure();
}
const char* decode_factors(float* values, float* residual, float share, const Factors& factors,
                           const MessageTable& table, void* stream) {
  return launch(outer_product_kernel, table.chunk_count, stream, values, residual, share, factors,
                table);
}

}  // namespace dynamiccl::kernels
