#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "train/step/learner.hpp"

namespace dynamiccl::testing {

/// A learner without data, loss or engine: what has parameters, stages and gradients derives from
/// it.
class StandInLearner : public Learner {
 public:
  [[nodiscard]] const std::vector<Parameter>& parameters() const override { return parameters_; }
  void on_gradient(OnGradient callback) override { callback_ = std::move(callback); }
  void load(const Batch&) override {}
  void keep_samples(const Dataset&) override {}
  [[nodiscard]] bool keeps_samples() const override { return false; }
  void fetch(const std::vector<std::size_t>&) override {}
  void load_fetched() override {}
  void forward(int) override {}
  void reset_statistics() override {}
  void compute_loss() override {}
  [[nodiscard]] double loss() const override { return 0; }
  double accuracy(const Batch&) override { return 0; }
  std::unique_ptr<DataParallelEngine> engine(EngineGroup&, Bytes) override { return nullptr; }

 protected:
  std::vector<Parameter> parameters_;
  OnGradient callback_;
};

}  // namespace dynamiccl::testing
