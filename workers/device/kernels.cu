#include "workers/device/kernels.hpp"
#include "workers/data/data_hash.hpp"

namespace dynamiccl::kernels {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::uint64_t kMaxBlocks = 4096;

__device__ std::uint32_t value_at(std::uint64_t own_key, std::uint64_t index, std::uint32_t range) {
  const auto block_key = static_cast<std::uint32_t>(splitmix64_of(own_key ^ (index / kDataBlock)));
  return lane_value(block_key, static_cast<std::uint32_t>(index % kDataBlock), range);
}

// The bits that hold a small integer exactly; equality of results is equality of bits.
template <Format format>
struct Encoded;
template <>
struct Encoded<Format::float32> {
  using Bits = std::uint32_t;
  static __device__ Bits of(std::uint32_t v) { return __float_as_uint(static_cast<float>(v)); }
};
template <>
struct Encoded<Format::float64> {
  using Bits = unsigned long long;
  static __device__ Bits of(std::uint32_t v) {
    return static_cast<Bits>(__double_as_longlong(static_cast<double>(v)));
  }
};
template <>
struct Encoded<Format::float16> {
  using Bits = std::uint16_t;
  static __device__ Bits of(std::uint32_t v) {
    // An integer that float16 holds exactly has the same digits as its float32.
    return static_cast<Bits>(v == 0 ? 0U
                                    : (__float_as_uint(static_cast<float>(v)) >> 13) - 0x1C000U);
  }
};
template <>
struct Encoded<Format::bfloat16> {
  using Bits = std::uint16_t;
  static __device__ Bits of(std::uint32_t v) {
    return static_cast<Bits>(__float_as_uint(static_cast<float>(v)) >> 16);
  }
};
template <>
struct Encoded<Format::int32> {
  using Bits = std::uint32_t;
  static __device__ Bits of(std::uint32_t v) { return v; }
};

template <Format format>
__global__ void fill_kernel(typename Encoded<format>::Bits* out, std::uint64_t own_key,
                            std::uint64_t first, std::uint64_t count, std::uint32_t range) {
  const std::uint64_t step = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  for (std::uint64_t i = static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < count; i += step)
    out[i] = Encoded<format>::of(value_at(own_key, first + i, range));
}

template <Format format>
__global__ void compare_kernel(const typename Encoded<format>::Bits* out, std::uint64_t key,
                               std::uint32_t range, Part part, Found* found) {
  const std::uint64_t step = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  for (std::uint64_t i = static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < part.count; i += step) {
    std::uint32_t sum = 0;
    for (int rank = part.first_rank; rank <= part.last_rank; ++rank)
      if (rank != part.skipped_rank) sum += value_at(rank_key(key, rank), part.first + i, range);
    if (out[i] == Encoded<format>::of(sum)) continue;
    atomicAdd(&found->wrong, 1ULL);
    atomicMin(&found->first_index, static_cast<unsigned long long>(i));
  }
}

unsigned blocks_for(std::uint64_t count) {
  const std::uint64_t wanted = (count + kThreads - 1) / kThreads;
  return static_cast<unsigned>(wanted < kMaxBlocks ? wanted : kMaxBlocks);
}

template <class F>
void with_format(Format format, F&& function) {
  switch (format) {
    case Format::float32:
      return function(std::integral_constant<Format, Format::float32>{});
    case Format::float64:
      return function(std::integral_constant<Format, Format::float64>{});
    case Format::float16:
      return function(std::integral_constant<Format, Format::float16>{});
    case Format::bfloat16:
      return function(std::integral_constant<Format, Format::bfloat16>{});
    case Format::int32:
      return function(std::integral_constant<Format, Format::int32>{});
  }
}

template <Format format>
using BitsOf = typename Encoded<format>::Bits;

/// A block computes a tile of c, by tiles of a and b that lie in its shared memory.
__global__ void multiply_kernel(const float* a, const float* b, float* c, unsigned order) {
  __shared__ float tile_a[kTile][kTile];
  __shared__ float tile_b[kTile][kTile];
  const std::size_t row = blockIdx.y * kTile + threadIdx.y;
  const std::size_t column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (unsigned first = 0; first < order; first += kTile) {
    tile_a[threadIdx.y][threadIdx.x] = a[row * order + first + threadIdx.x];
    tile_b[threadIdx.y][threadIdx.x] = b[(first + threadIdx.y) * order + column];
    __syncthreads();
    for (unsigned k = 0; k < kTile; ++k) sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
    __syncthreads();
  }
  c[row * order + column] = sum / static_cast<float>(order);
}

}  // namespace

cudaError_t fill(void* out, Format format, std::uint64_t own_key, std::uint64_t first,
                 std::uint64_t count, std::uint32_t range, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  with_format(format, [&](auto tag) {
    constexpr Format kFormat = decltype(tag)::value;
    fill_kernel<kFormat><<<blocks_for(count), kThreads, 0, stream>>>(
        static_cast<BitsOf<kFormat>*>(out), own_key, first, count, range);
  });
  return cudaGetLastError();
}

cudaError_t compare(const void* out, Format format, std::uint64_t key, std::uint32_t range,
                    const Part& part, Found* found, cudaStream_t stream) {
  if (part.count == 0) return cudaSuccess;
  with_format(format, [&](auto tag) {
    constexpr Format kFormat = decltype(tag)::value;
    compare_kernel<kFormat><<<blocks_for(part.count), kThreads, 0, stream>>>(
        static_cast<const BitsOf<kFormat>*>(out), key, range, part, found);
  });
  return cudaGetLastError();
}

cudaError_t multiply(const float* a, const float* b, float* c, unsigned order,
                     cudaStream_t stream) {
  multiply_kernel<<<dim3(order / kTile, order / kTile), dim3(kTile, kTile), 0, stream>>>(a, b, c,
                                                                                         order);
  return cudaGetLastError();
}

}  // namespace dynamiccl::kernels
