#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dynamiccl {

/// A dedicated server's side of steps that all workers do together.
class StepServer {
 public:
  virtual ~StepServer() = default;
  StepServer(const StepServer&) = delete;
  StepServer& operator=(const StepServer&) = delete;
  /// What it takes of the workers before their first step, also when they begin anew.
  virtual void take_weights() = 0;
  /// Serves so many steps of all workers. Per step: microseconds until its last sum was sent.
  struct Step {
    double start_us;
    double end_us;
    double sum_us;
  };
  virtual std::vector<Step> serve(int steps) = 0;
  [[nodiscard]] virtual std::uint64_t sent_bytes() const = 0;
  /// Gradients and answers; momentum is the optimizer's.
  [[nodiscard]] virtual std::size_t held_bytes() const = 0;
  [[nodiscard]] virtual std::size_t shard_bytes() const = 0;

 protected:
  StepServer() = default;
};

}  // namespace dynamiccl
