#pragma once
// What gpu_kernels.cu needs of CUDA, for the host: the threads of a block take turns on one thread,
// each from one __syncthreads() to the next, and blocks follow each other. Included by that file
// alone.
#include <ucontext.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

// NOLINTBEGIN: these are CUDA's names.
#define __global__
#define __device__
#define __shared__ static

namespace dynamiccl::kernels {
namespace {

constexpr unsigned kThreads = 128;

struct Index {
  unsigned x = 0;
};
Index threadIdx;
Index blockIdx;
Index gridDim;

/// The threads of a block as contexts of their own.
class BlockOnHost {
 public:
  explicit BlockOnHost(const std::function<void()>& kernel) : kernel_(kernel) {
    if (stacks_.empty()) stacks_.resize(kThreads * kStack);
  }
  void run() {
    now_ = this;
    threads_.assign(kThreads, ucontext_t{});
    done_.assign(kThreads, false);
    for (unsigned t = 0; t < kThreads; ++t) {
      getcontext(&threads_[t]);
      threads_[t].uc_stack.ss_sp = &stacks_[t * kStack];
      threads_[t].uc_stack.ss_size = kStack;
      threads_[t].uc_link = &turns_;
      makecontext(&threads_[t], &BlockOnHost::start, 0);
    }
    for (bool any = true; any;) {
      any = false;
      for (unsigned t = 0; t < kThreads; ++t) {
        if (done_[t]) continue;
        any = true;
        threadIdx.x = t;
        swapcontext(&turns_, &threads_[t]);
      }
    }
  }
  static void next_turn() {
    const unsigned own = threadIdx.x;
    swapcontext(&now_->threads_[own], &now_->turns_);
  }

 private:
  static constexpr std::size_t kStack = 1U << 16;
  static void start() {
    now_->kernel_();
    now_->done_[threadIdx.x] = true;
  }
  static inline BlockOnHost* now_ = nullptr;
  static inline std::vector<char> stacks_;  ///< of one launch after the other
  const std::function<void()>& kernel_;
  std::vector<ucontext_t> threads_;
  std::vector<bool> done_;
  ucontext_t turns_{};
};

void __syncthreads() { BlockOnHost::next_turn(); }
unsigned atomicAdd(unsigned* at, unsigned value) {
  *at += value;
  return *at - value;
}
unsigned atomicMax(unsigned* at, unsigned value) {
  const unsigned before = *at;
  *at = value > before ? value : before;
  return before;
}

/// Ranks are threads.
std::mutex one_at_a_time;

template <class... P, class... A>
const char* launch(void (*kernel)(P...), unsigned blocks, void* /*stream*/, A... arguments) {
  const std::lock_guard lock(one_at_a_time);
  const std::function<void()> call = [&] { kernel(arguments...); };
  BlockOnHost block(call);
  gridDim.x = blocks;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) block.run();
  return nullptr;
}

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
float of_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
std::uint16_t to_float16(float value) {
  return std::bit_cast<std::uint16_t>(static_cast<_Float16>(value));
}
float from_float16(std::uint16_t bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }

}  // namespace
}  // namespace dynamiccl::kernels
// NOLINTEND
