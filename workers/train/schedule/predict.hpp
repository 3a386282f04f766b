#pragma once

#include <vector>

#include "core/training.hpp"
#include "workers/train/schedule/partition.hpp"

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

/// How long one message of the method takes, and what of it the computing cores lose.
struct LinkCost {
  CostTable time;
  /// Second half of a split all-reduce (DeAR); empty where there is none.
  CostTable second;
  /// CPU time of the transport on this rank, microseconds by size.
  CostTable cpu;
  bool cores_are_full = false;  ///< ranks x threads take every core: transport slows computation
};

/// Expected time of a step in the steady state: messages one after the other in the method's order,
/// the next step's stages waiting for theirs where the method crosses the barrier.
double predicted_step_us(TrainingMethod method, const StepProfile& profile,
                         const std::vector<Piece>& pieces, const LinkCost& link);

}  // namespace dynamiccl
