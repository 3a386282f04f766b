#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "train/plan/exchange_plan.hpp"
#include "train/step/reducer.hpp"
#include "train/step/tensor_memory.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// A codec whose every part is queued on the GPU: gradients are encoded, exchanged and decoded
/// where they lie, in the lane of the library's queue that is in use, and the host waits for
/// nothing. It says what GradientCodec says of the same gradients, bit for bit, but for how a frame
/// is laid out (gpu_kernels.hpp). One thread at a time.
class QueuedCodec {
 public:
  virtual ~QueuedCodec() = default;
  QueuedCodec(const QueuedCodec&) = delete;
  QueuedCodec& operator=(const QueuedCodec&) = delete;

  /// As before the first step.
  virtual void restart() = 0;
  /// Before the first message of a step.
  virtual void begin_step() = 0;
  /// Runs what is queued under a name: "encode", "reduce" or "decode".
  using Call = std::function<void(const char* what, const std::function<void()>& work)>;
  /// Queues a message: this worker's gradients in it become the sum of all workers'.
  virtual void sum(std::size_t piece, const Call& call) = 0;

  [[nodiscard]] virtual std::uint64_t sent_bytes() const = 0;
  /// Memory besides the gradients: what is kept back, and frames.
  [[nodiscard]] virtual std::size_t extra_bytes() const = 0;
  /// Steps and bytes since the last call; no times.
  virtual CodingFigures take_coding() = 0;

 protected:
  QueuedCodec() = default;
};

/// @param comm has a queue
/// @param gradients plan.elements() of `memory`; outlives the codec, as `memory` does
/// @throws Error(environment) in a build without CUDA, or for a codec that is not offered on GPUs
std::unique_ptr<QueuedCodec> make_queued_codec(Communicator& comm, const ExchangePlan& plan,
                                               float* gradients, TensorMemory& memory);

}  // namespace dynamiccl
