#pragma once

#include <functional>

#include "core/wire/record.hpp"
#include "workers/clock.hpp"
#include "workers/messages.hpp"

namespace dynamiccl {

/// Microseconds of the clock to compare; CLOCK_MONOTONIC outside tests.
using ClockFunction = std::function<double()>;

/// Compares each rank's clock with rank 0's, one rank after the other: 8 to 64 ping-pongs
/// within 20 ms, of which the fastest counts. Half its round trip bounds the error however unlike
/// the two ways are. Costs a launch a few milliseconds a rank, before and after its cells.
class ClockSync {
 public:
  /// First comparison. Ranks: all.
  explicit ClockSync(Messages& comm, ClockFunction clock = now_us);
  /// Second comparison: what the clocks drifted. Ranks: all.
  [[nodiscard]] ClockRecord conclude();

 private:
  struct Reading {
    double at_us = 0;
    double offset_us = 0;
    double error_us = 0;
    int rounds = 0;
  };
  Reading compare();
  Reading ask(int rank) const;
  [[nodiscard]] Reading answer() const;
  [[nodiscard]] bool same_clock_as_root() const;

  Messages& comm_;
  ClockFunction clock_;
  Reading before_;
  bool same_kernel_clock_ = false;
};

}  // namespace dynamiccl
