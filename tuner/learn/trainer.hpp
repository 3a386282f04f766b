#pragma once

#include <memory>

#include "tuner/learn/rollout.hpp"

namespace dynamiccl {

/// Proximal policy optimisation (Schulman et al., arXiv 1707.06347), clipped objective with
/// generalised advantages (arXiv 1506.02438).
struct PpoOptions {
  double learning_rate = 1e-3;
  double clip = 0.2;
  double discount = 1;      ///< a search ends with its budget
  double smoothing = 0.95;  ///< lambda of the advantages
  double entropy = 0.003;
  double value_weight = 0.5;
  double gradient_norm = 0.5;
  int epochs = 3;
  int minibatches = 4;
};

/// What one update did.
struct PpoReport {
  double policy_loss = 0;
  double value_loss = 0;
  double entropy = 0;     ///< per head
  double divergence = 0;  ///< mean of old minus new log probability
};

/// Differences between the forward pass of torch and the one that runs without it.
struct ForwardDifference {
  double log_probability = 0;
  double value = 0;
};

/// Trains a policy's weights with libtorch. One thread.
class PpoTrainer {
 public:
  PpoTrainer(const Policy& start, const PpoOptions& options, std::uint64_t seed);
  ~PpoTrainer();
  PpoTrainer(const PpoTrainer&) = delete;
  PpoTrainer& operator=(const PpoTrainer&) = delete;

  PpoReport update(const Rollout& rollout);
  [[nodiscard]] Weights weights() const;
  /// Largest differences over a rollout's decisions, which must come from these weights.
  [[nodiscard]] ForwardDifference difference(const Rollout& rollout) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dynamiccl
