#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "workers/communicator.hpp"

namespace dynamiccl {

/// A CUDA stream with two event marks and at most one recorded graph.
class CudaQueue final : public GpuQueue {
 public:
  /// On the current device.
  CudaQueue();
  ~CudaQueue() override;
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  void mark_start() override;
  void mark_stop() override;
  double marked_us() override;
  void begin_capture() override;
  void end_capture() override;
  void replay() override;
  void follow(void* stream) override;
  void note(std::size_t number) override;
  void hold_back(void* stream, std::size_t number) override;
  /// A graph must go before the communicator whose calls it holds.
  void drop_graph();

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
  cudaEvent_t followed_ = nullptr;
  std::vector<cudaEvent_t> notes_;
};

}  // namespace dynamiccl
