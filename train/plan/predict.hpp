#pragma once

#include <vector>

#include "train/plan/partition.hpp"
#include "train/spec/training.hpp"

namespace dynamiccl {

/// What one step costs a worker alone, in microseconds.
struct StepProfile {
  double forward_us = 0;
  double backward_us = 0;
  double update_us = 0;
  std::vector<double> stage_forward_us;  ///< of each stage, sums to forward_us
  std::vector<Gradient> gradients;       ///< ready_us since the backward pass began
  std::vector<int> stage_of_gradient;    ///< which stage a gradient belongs to
};

/// How long one message of the method takes, measured on idle and on computing processors: the
/// transport computes too, and where ranks fill every core both wait for each other.
struct LinkCost {
  CostTable time;  ///< nobody computes
  /// Second half of a split all-reduce (DeAR); empty where there is none.
  CostTable second;
  /// CPU time of the transport on this rank, microseconds by size; for the record.
  CostTable cpu;
  /// The same two while every worker computes, and how much of its computation a worker loses
  /// meanwhile (both halves). Empty: as on idle processors, nothing is lost.
  CostTable busy_time;
  CostTable busy_second;
  CostTable lost;
};

/// A step as it is expected, microseconds.
struct StepPrediction {
  double step_us = 0;
  double computing_us = 0;  ///< with what the transport slows it down
  double exposed_us = 0;    ///< computation stands still until gradients arrive
  double sending_us = 0;    ///< a message is under way, hidden or not
};

/// Expected step in the steady state: one message after the other in the method's order, the next
/// step's stages waiting for theirs where the method crosses the barrier. While a message and
/// computation overlap both go at the pace that was measured for that.
/// @param credit_bytes ByteScheduler's; others ignore it
StepPrediction predict_step(TrainingMethod method, const StepProfile& profile,
                            const std::vector<Piece>& pieces, const LinkCost& link,
                            std::size_t credit_bytes);

}  // namespace dynamiccl
