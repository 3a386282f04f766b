#pragma once

#include <torch/types.h>

#include "train/step/tensor_memory.hpp"

namespace dynamiccl {

/// Memory of a device that has streams and events.
std::unique_ptr<TensorMemory> make_gpu_memory(torch::Device device);

}  // namespace dynamiccl
