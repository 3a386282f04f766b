#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace dynamiccl::kernels {

/// Element formats by how their bits are made; the same order as DataType.
enum class Format : int { float32, float64, float16, bfloat16, int32 };

/// A stretch of an output and the ranks whose inputs' sum it must hold (ExpectedPart).
struct Part {
  std::uint64_t first;
  std::uint64_t count;
  int first_rank;
  int last_rank;
  int skipped_rank;
};

/// What a comparison found; `first_index` is the lowest differing one.
struct Found {
  unsigned long long wrong;
  unsigned long long first_index;
};

/// Queues the writing of elements first..first+count-1 of a rank's input.
cudaError_t fill(void* out, Format format, std::uint64_t rank_key, std::uint64_t first,
                 std::uint64_t count, std::uint32_t range, cudaStream_t stream);

/// Queues the comparison of every element of a part; `found` is device memory, set by the caller.
cudaError_t compare(const void* out, Format format, std::uint64_t key, std::uint32_t range,
                    const Part& part, Found* found, cudaStream_t stream);

/// Queues c = a x b / `order` of square matrices; `order` is a multiple of kTile.
inline constexpr unsigned kTile = 32;
cudaError_t multiply(const float* a, const float* b, float* c, unsigned order, cudaStream_t stream);

}  // namespace dynamiccl::kernels
