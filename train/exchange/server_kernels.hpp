#pragma once

#include <cstdint>

namespace dynamiccl::kernels {

// A server's own work on its GPU; as the host's loops, a product and a sum are rounded each by
// itself. Every function queues its work on `stream` (a cudaStream_t) and returns nullptr, or what
// the CUDA runtime says.

/// sum = slots[0] + slots[stride] + ..., in the order of the slots.
const char* add_slots(const float* slots, std::uint64_t stride, int count_of_slots,
                      std::uint64_t count, float* sum, void* stream);

/// As sgd_update() of the host.
const char* update_served(float rate, float momentum, float scale, const float* sum,
                          float* velocity, float* weights, std::uint64_t count, void* stream);

}  // namespace dynamiccl::kernels
