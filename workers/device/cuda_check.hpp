#pragma once

#include <cuda_runtime.h>
#include <fmt/format.h>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {

/// @throws Error(environment) naming the call and what the CUDA runtime says
inline void check_cuda(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  throw Error(
      ErrorKind::environment,
      fmt::format("{} failed: {} ({})", call, cudaGetErrorString(code), cudaGetErrorName(code)));
}

}  // namespace dynamiccl
