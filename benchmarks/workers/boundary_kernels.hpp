#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace dynamiccl::boundary {

/// What rank `rank` gives to an operation at element `index`: small whole numbers, so that sums are
/// exact.
__host__ __device__ inline std::uint32_t element(std::uint32_t rank, std::uint64_t index,
                                                 std::uint32_t seed) {
  std::uint64_t value = index * 0x9e3779b97f4a7c15ULL + rank * 0x94d049bb133111ebULL + seed;
  value = (value ^ (value >> 31)) * 0xbf58476d1ce4e5b9ULL;
  return static_cast<std::uint32_t>(value >> 40) & 15U;
}

/// data[i] = element(rank, first + i, seed)
void fill(float* data, std::size_t count, std::uint32_t rank, std::uint64_t first,
          std::uint32_t seed, cudaStream_t stream);
/// Counts elements that are not the sum over ranks [low, high) of element(rank, first + i, seed).
void check(const float* data, std::size_t count, std::uint32_t low, std::uint32_t high,
           std::uint64_t first, std::uint32_t seed, unsigned long long* wrong, cudaStream_t stream);

}  // namespace dynamiccl::boundary
