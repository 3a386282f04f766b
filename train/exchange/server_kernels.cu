// What a server does with the gradients that came to its GPU.
#include "train/exchange/server_kernels.hpp"

#include "train/codecs/queued/gpu_kernels_base.cuh"

namespace dynamiccl::kernels {
namespace {

/// Enough to fill a GPU; each thread takes every so-manieth element.
constexpr std::uint64_t kMostBlocks = 1024;

unsigned adding_blocks(std::uint64_t count) {
  const std::uint64_t wanted = (count + kThreads - 1) / kThreads;
  return static_cast<unsigned>(wanted < kMostBlocks ? wanted : kMostBlocks);
}

__global__ void add_slots_kernel(const float* slots, std::uint64_t stride, int count_of_slots,
                                 std::uint64_t count, float* sum) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * kThreads;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    float value = slots[i];
    for (int slot = 1; slot < count_of_slots; ++slot)
      value += slots[static_cast<std::uint64_t>(slot) * stride + i];
    sum[i] = value;
  }
}

__global__ void update_served_kernel(float rate, float momentum, float scale, const float* sum,
                                     float* velocity, float* weights, std::uint64_t count) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * kThreads;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    velocity[i] = momentum * velocity[i] + sum[i] * scale;
    weights[i] -= rate * velocity[i];
  }
}

}  // namespace

const char* add_slots(const float* slots, std::uint64_t stride, int count_of_slots,
                      std::uint64_t count, float* sum, void* stream) {
  return launch(add_slots_kernel, adding_blocks(count), stream, slots, stride, count_of_slots, count,
                sum);
}

const char* update_served(float rate, float momentum, float scale, const float* sum,
                          float* velocity, float* weights, std::uint64_t count, void* stream) {
  return launch(update_served_kernel, adding_blocks(count), stream, rate, momentum, scale, sum,
                velocity, weights, count);
}

}  // namespace dynamiccl::kernels
