#include "benchmarks/workers/boundary_kernels.hpp"

namespace dynamiccl::boundary {
namespace {

constexpr unsigned kThreads = 256;

__global__ void fill_kernel(float* data, std::size_t count, std::uint32_t rank, std::uint64_t first,
                            std::uint32_t seed) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += step)
    data[i] = static_cast<float>(element(rank, first + i, seed));
}

__global__ void check_kernel(const float* data, std::size_t count, std::uint32_t low,
                             std::uint32_t high, std::uint64_t first, std::uint32_t seed,
                             unsigned long long* wrong) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  unsigned long long bad = 0;
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += step) {
    float sum = 0;
    for (std::uint32_t rank = low; rank < high; ++rank)
      sum += static_cast<float>(element(rank, first + i, seed));
    if (data[i] != sum) ++bad;
  }
  if (bad != 0) atomicAdd(wrong, bad);
}

unsigned blocks_for(std::size_t count) {
  const std::size_t blocks = (count + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks > 1024 ? 1024 : blocks);
}

}  // namespace

void fill(float* data, std::size_t count, std::uint32_t rank, std::uint64_t first,
          std::uint32_t seed, cudaStream_t stream) {
  fill_kernel<<<blocks_for(count), kThreads, 0, stream>>>(data, count, rank, first, seed);
}
void check(const float* data, std::size_t count, std::uint32_t low, std::uint32_t high,
           std::uint64_t first, std::uint32_t seed, unsigned long long* wrong,
           cudaStream_t stream) {
  check_kernel<<<blocks_for(count), kThreads, 0, stream>>>(data, count, low, high, first, seed,
                                                           wrong);
}

}  // namespace dynamiccl::boundary
