#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "workers/gpu_queue.hpp"

namespace dynamiccl {

/// CUDA streams side by side, its lanes, of which the first has two event marks and at most one
/// recorded graph.
class CudaQueue final : public GpuQueue {
 public:
  /// On the current device.
  CudaQueue();
  ~CudaQueue() override;
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  /// Of the lane in use.
  [[nodiscard]] cudaStream_t stream() const { return streams_[lane_]; }
  [[nodiscard]] std::size_t lane() const { return lane_; }
  void set_lanes(std::size_t count);
  /// True when the GPU has done what every lane held. @throws Error(environment)
  [[nodiscard]] bool is_done() const;
  void mark_start() override;
  void mark_stop() override;
  double marked_us() override;
  void begin_capture() override;
  void end_capture() override;
  void replay() override;
  void follow(void* stream) override;
  void note(std::size_t number) override;
  void note_also(std::size_t number) override;
  void hold_back(void* stream, std::size_t number) override;
  void stamp(std::size_t number) override;
  [[nodiscard]] double between_us(std::size_t from, std::size_t to) override;
  void use_lane(std::size_t lane) override;
  [[nodiscard]] void* own_stream() override { return stream(); }
  /// A graph must go before the communicator whose calls it holds.
  void drop_graph();

 private:
  std::vector<cudaStream_t> streams_;
  std::size_t lane_ = 0;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
  cudaEvent_t followed_ = nullptr;
  struct Note {
    std::vector<cudaEvent_t> events;
    std::size_t lanes = 0;  ///< how many of the events count
  };
  std::vector<Note> notes_;
  std::vector<cudaEvent_t> stamps_;
};

}  // namespace dynamiccl
