#pragma once

#include "train/step/worker_step.hpp"

namespace dynamiccl {

/// A worker's gradients and what it is answered where messages take them: the worker's own buffers,
/// or page-locked host memory next to a GPU's, as a server that answers each worker by itself is
/// spoken to by messages of the host (NCCL knows no message from whoever comes first).
class MessageBuffers {
 public:
  explicit MessageBuffers(TrainingWorker& worker)
      : worker_(worker), count_(worker.gradient_bytes() / sizeof(float)) {
    worker_.hold(true, worker_.needs_answers(/*servers=*/1));
    if (staged()) host_.resize(worker_.memory(), 2 * count_);
  }
  MessageBuffers(const MessageBuffers&) = delete;
  MessageBuffers& operator=(const MessageBuffers&) = delete;

  [[nodiscard]] float* gradients() { return staged() ? host_.data() : worker_.gradients(); }
  [[nodiscard]] float* answers() { return staged() ? host_.at(count_) : worker_.sums(); }
  /// The worker's gradients come into gradients().
  void fetch() {
    if (staged()) worker_.memory().to_host(worker_.gradients(), gradients(), count_);
  }
  /// answers() come into the worker's sums().
  void bring() {
    if (staged()) worker_.memory().from_host(answers(), worker_.sums(), count_);
  }
  [[nodiscard]] std::size_t staging_bytes() const { return host_.size() * sizeof(float); }

 private:
  [[nodiscard]] bool staged() const { return worker_.memory().on_gpu(); }

  TrainingWorker& worker_;
  std::size_t count_;
  HostBuffer host_;
};

}  // namespace dynamiccl
