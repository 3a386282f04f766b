#pragma once

// What all kernels of codecs share: a block's chunk of a message, and what is measured of it.
// Compiled by nvcc; tests compile the same text for the host, a thread for each of a block's.
#include "train/codecs/queued/gpu_kernels.hpp"

#ifdef __CUDACC__
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#else
#include "tests/train/kernels_on_host.hpp"
#endif

#include "train/codecs/loops/random_words.hpp"

namespace dynamiccl::kernels {
namespace {

#ifdef __CUDACC__
constexpr unsigned kThreads = 256;

template <class... P, class... A>
const char* launch(void (*kernel)(P...), unsigned blocks, void* stream, A... arguments) {
  if (blocks == 0) return nullptr;
  kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(arguments...);
  const cudaError_t code = cudaGetLastError();
  return code == cudaSuccess ? nullptr : cudaGetErrorString(code);
}
__device__ std::uint32_t bits_of(float value) { return __float_as_uint(value); }
__device__ float of_bits(std::uint32_t bits) { return __uint_as_float(bits); }
__device__ std::uint16_t to_float16(float value) {
  return __half_as_ushort(__float2half_rn(value));
}
__device__ float from_float16(std::uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
#endif

constexpr std::uint32_t kSignBit = 0x80000000U;
constexpr std::uint32_t kLanes = 16;    // kSumLanes of loops.hpp
constexpr std::uint32_t kBucket = 512;  // kQsgdBucket
constexpr std::uint32_t kBuckets = kChunk / kBucket;
constexpr std::uint32_t kPerThread = kChunk / kThreads;
static_assert(kChunk % kThreads == 0);

__device__ std::uint32_t smaller(std::uint32_t a, std::uint32_t b) { return a < b ? a : b; }

/// The chunk of this block.
struct Chunk {
  PartRow part;
  std::uint32_t start;
  std::uint32_t count;
  std::uint64_t at;  ///< in the flat buffers
};
__device__ Chunk own_chunk(const MessageTable& table) {
  const ChunkRow row = table.chunks[blockIdx.x];
  Chunk chunk;
  chunk.part = table.parts[row.part];
  chunk.start = row.start;
  chunk.count = smaller(kChunk, chunk.part.count - row.start);
  chunk.at = chunk.part.offset + row.start;
  return chunk;
}

/// One lane's sum, as loops.hpp has it: what does not fill all lanes goes to the first.
template <class Term>
__device__ float lane_sum(const float* values, std::uint32_t count, std::uint32_t lane, Term term) {
  const std::uint32_t full = count / kLanes * kLanes;
  float sum = 0;
  for (std::uint32_t i = lane; i < full; i += kLanes) sum += term(values[i]);
  if (lane == 0)
    for (std::uint32_t i = full; i < count; ++i) sum += term(values[i]);
  return sum;
}
__device__ double sum_of_lanes(const float* lanes) {
  double sum = 0;
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) sum += lanes[lane];
  return sum;
}

/// What a chunk is measured for.
enum What : unsigned { kLargest = 1, kSigns = 2, kSquares = 4, kNorms = 8 };

/// Values become values + residual; what the codec's numbers are made of goes to `measured`, QSGD's
/// numbers, which are a bucket's alone, to the frame.
__global__ void measure_kernel(float* values, const float* residual, MessageTable table,
                               Measured* measured, unsigned what, std::uint8_t* frame) {
  __shared__ float cache[kChunk];
  __shared__ float lanes[8][kLanes];
  __shared__ unsigned largest;
  __shared__ unsigned negatives;
  static_assert(kBuckets <= 8);
  const Chunk chunk = own_chunk(table);
  const unsigned t = threadIdx.x;
  if (t == 0) largest = negatives = 0;
  __syncthreads();
  unsigned own_largest = 0;
  unsigned own_negatives = 0;
  for (std::uint32_t i = t; i < chunk.count; i += kThreads) {
    float value = values[chunk.at + i];
    if (residual != nullptr) {
      value += residual[chunk.at + i];
      values[chunk.at + i] = value;
    }
    cache[i] = value;
    const std::uint32_t size = bits_of(value) & ~kSignBit;
    own_largest = size > own_largest ? size : own_largest;
    own_negatives += bits_of(value) >> 31;
  }
  if ((what & kLargest) != 0 && own_largest > 0) atomicMax(&largest, own_largest);
  if ((what & kSigns) != 0 && own_negatives > 0) atomicAdd(&negatives, own_negatives);
  __syncthreads();
  const std::uint32_t row = t / kLanes;
  const std::uint32_t lane = t % kLanes;
  if ((what & kSigns) != 0 && row < 2) {
    lanes[row][lane] =
        row == 0 ? lane_sum(cache, chunk.count, lane, [](float v) { return v > 0 ? v : 0.0F; })
                 : lane_sum(cache, chunk.count, lane, [](float v) { return v < 0 ? v : 0.0F; });
  }
  if ((what & kSquares) != 0 && row == 2)
    lanes[2][lane] = lane_sum(cache, chunk.count, lane, [](float v) { return v * v; });
  if ((what & kNorms) != 0 && row < kBuckets && row * kBucket < chunk.count)
    lanes[row][lane] =
        lane_sum(cache + row * kBucket, smaller(kBucket, chunk.count - row * kBucket), lane,
                 [](float v) { return v * v; });
  __syncthreads();
  if ((what & kNorms) != 0) {
    if (t < kBuckets && t * kBucket < chunk.count) {
      auto* norms = reinterpret_cast<float*>(frame + chunk.part.numbers);
      norms[chunk.start / kBucket + t] = static_cast<float>(sqrt(sum_of_lanes(lanes[t])));
    }
    return;
  }
  if (t != 0 || what == 0) return;
  Measured found{};
  if ((what & kSigns) != 0) {
    found.positive = sum_of_lanes(lanes[0]);
    found.negative = sum_of_lanes(lanes[1]);
  }
  if ((what & kSquares) != 0) found.squares = sum_of_lanes(lanes[2]);
  found.largest = of_bits(largest);
  found.negatives = negatives;
  measured[blockIdx.x] = found;
}

/// A part's chunks together, in their order. One block; what the first thread gets counts.
__device__ Measured of_part(const PartRow& part, const Measured* measured) {
  __shared__ Measured some[kThreads];
  Measured all{};
  double negatives = 0;
  for (std::uint32_t first = 0; first < part.chunks; first += kThreads) {
    const std::uint32_t count = smaller(kThreads, part.chunks - first);
    __syncthreads();
    if (threadIdx.x < count) some[threadIdx.x] = measured[part.first_chunk + first + threadIdx.x];
    __syncthreads();
    for (std::uint32_t i = 0; threadIdx.x == 0 && i < count; ++i) {
      all.positive += some[i].positive;
      all.negative += some[i].negative;
      all.squares += some[i].squares;
      all.largest = some[i].largest > all.largest ? some[i].largest : all.largest;
      negatives += some[i].negatives;
    }
  }
  all.negatives = static_cast<std::uint32_t>(negatives);
  return all;
}

/// The first failure of several launches.
class Launches {
 public:
  template <class... A>
  void operator()(A... arguments) {
    if (failure_ == nullptr) failure_ = launch(arguments...);
  }
  [[nodiscard]] const char* failure() const { return failure_; }

 private:
  const char* failure_ = nullptr;
};

}  // namespace
}  // namespace dynamiccl::kernels
