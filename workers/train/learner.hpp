#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/training.hpp"
#include "workers/train/dataset.hpp"

namespace dynamiccl {

/// One trainable tensor, contiguous.
struct Parameter {
  float* data = nullptr;
  std::size_t count = 0;
  int stage = 0;  ///< the first stage of the forward pass that reads it
};

/// A model as training sees it: stages that run one after the other, and gradients that become
/// ready one by one. The one place behind which tensors live. One thread.
class Learner {
 public:
  virtual ~Learner() = default;
  Learner(const Learner&) = delete;
  Learner& operator=(const Learner&) = delete;

  /// In the order in which the model registered them.
  [[nodiscard]] virtual const std::vector<Parameter>& parameters() const = 0;
  [[nodiscard]] virtual int stages() const = 0;

  /// Called once per parameter in each backward pass, as soon as its gradient is whole; `gradient`
  /// is valid during the call only.
  using OnGradient = std::function<void(std::size_t parameter, const float* gradient)>;
  virtual void on_gradient(OnGradient callback) = 0;

  virtual void load(const Batch& batch) = 0;
  /// Stages in order, each after load() once.
  virtual void forward(int stage) = 0;
  /// After the last stage.
  /// @returns the loss
  virtual double loss() = 0;
  virtual void backward() = 0;
  /// Share of labels that the model finds, in evaluation mode.
  virtual double accuracy(const Batch& batch) = 0;

 protected:
  Learner() = default;
};

/// Same seed, same weights on every rank.
/// @param threads of computation in this process
std::unique_ptr<Learner> make_learner(const TrainingSpec& spec, std::uint64_t seed, int threads);

/// Version of the tensor library, and which linear algebra it runs on: Debian's own reference BLAS
/// is 30 times slower than OpenBLAS.
std::string learner_library();
bool has_fast_blas();

}  // namespace dynamiccl
