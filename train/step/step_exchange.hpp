#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "train/step/reducer.hpp"

namespace dynamiccl {

/// One thing the communication thread, or a lane of the GPU's queue, did, for the timeline.
/// Microseconds of the rank's clock.
struct Span {
  const char* what;
  std::size_t piece;
  double start_us;
  double end_us;
  std::size_t lane = 0;
  std::size_t bytes = 0;  ///< where it is a lane's part of the piece, or all pieces, else 0
};

/// What communication did in one step.
struct StepCalls {
  double start_us = 0;  ///< of the step
  std::vector<Span> spans;
};

/// How a worker's gradients become sums, as its steps see it. One step after the other:
/// start_step(), ready() for every gradient, wait() for every gradient; all from the computing
/// thread, except that ready() may come from another one while that thread runs the backward pass.
class StepExchange {
 public:
  virtual ~StepExchange() = default;
  StepExchange(const StepExchange&) = delete;
  StepExchange& operator=(const StepExchange&) = delete;

  /// Before the first gradient of a step. Every sum of the step before has been waited for.
  virtual void start_step() = 0;
  /// The gradient lies in the buffer, or will when the GPU has done what was queued so far. Each
  /// one exactly once per step.
  virtual void ready(std::size_t gradient) = 0;
  /// True when TensorMemory::mark() must come before each ready().
  [[nodiscard]] virtual bool needs_marks() const { return false; }
  /// Who applies the sums of the gradients [first, last). An exchange that queues its work calls it
  /// as soon as they are queued, so that it queues the update during the computation, and wait()
  /// waits for that too. Returns false where the caller applies them after wait().
  using Apply = std::function<void(std::size_t first, std::size_t last)>;
  virtual bool apply_by(const Apply& /*apply*/) { return false; }
  /// What the computing thread does or queues from now on finds the sum of this gradient.
  /// @throws what ended the communication
  virtual void wait(std::size_t gradient) = 0;
  /// After a step whose sums are all there: who sets its calls learns what they took.
  virtual void end_step() {}
  /// Blocks until nothing is under way, so that the owner may use the communicator.
  virtual void flush() = 0;
  /// For who waits for what the GPU was given: @throws what will keep it from ever being done
  virtual void check() {}
  /// As Reducer::take_weights().
  virtual void take_weights(const float* /*weights*/) {}
  /// As Reducer's; after flush().
  virtual void restart() {}
  virtual std::optional<CodingFigures> take_coding() { return std::nullopt; }

  /// Since the last call: microseconds in which communication was busy, nullopt where nobody saw
  /// it.
  virtual std::optional<double> take_busy_us() = 0;
  /// What the next step does is wanted; what was before is forgotten.
  virtual void trace_next() { take_spans(); }
  /// What it did since the last call, or since trace_next(); on a GPU in the step after that alone.
  /// After flush().
  virtual std::vector<Span> take_spans() = 0;
  [[nodiscard]] virtual std::uint64_t sent_bytes() const = 0;
  /// As Reducer's.
  [[nodiscard]] virtual std::size_t extra_bytes() const = 0;
  [[nodiscard]] virtual std::size_t staging_bytes() const { return 0; }

 protected:
  StepExchange() = default;
};

}  // namespace dynamiccl
