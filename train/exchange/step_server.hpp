#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "workers/clock.hpp"

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
  std::vector<Step> serve(int steps) {
    std::vector<Step> times;
    for (int step = 0; step < steps; ++step) {
      const double start_us = times.empty() ? now_us() : times.back().end_us;
      const double sum_us = serve_step();
      times.push_back({start_us, now_us(), sum_us});
    }
    complete_sends();
    return times;
  }
  [[nodiscard]] virtual std::uint64_t sent_bytes() const = 0;
  /// Gradients and answers; momentum is the optimizer's.
  [[nodiscard]] virtual std::size_t held_bytes() const = 0;
  [[nodiscard]] virtual std::size_t shard_bytes() const = 0;

 protected:
  StepServer() = default;
  /// One step of all workers. @returns microseconds in which it summed
  virtual double serve_step() = 0;
  /// After the last of serve()'s steps: answers that are still under way arrive.
  virtual void complete_sends() {}
};

}  // namespace dynamiccl
