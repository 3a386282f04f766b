#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/data/dataset.hpp"
#include "train/spec/training.hpp"
#include "train/step/tensor_memory.hpp"

namespace dynamiccl {

/// One trainable tensor, contiguous, in its learner's memory.
struct Parameter {
  float* data = nullptr;
  std::size_t count = 0;
  int stage = 0;         ///< the first stage of the forward pass that reads it
  std::size_t rows = 1;  ///< of a matrix, as which tensors of more dimensions are taken
};

/// Where the ranks of the tensor library's own data-parallel engine meet.
struct EngineMeeting {
  std::string store_file;  ///< every rank sees it under this path; the first one makes it
  std::string interface;   ///< the network interface that carries the gradients
  int rank = 0;
  int size = 1;
  Micros connect_timeout{30e6};
};

/// The joined ranks of that engine; made by join_engine alone.
class EngineGroup {
 public:
  virtual ~EngineGroup() = default;
  EngineGroup(const EngineGroup&) = delete;
  EngineGroup& operator=(const EngineGroup&) = delete;

 protected:
  EngineGroup() = default;
};

/// PyTorch DDP's engine (c10d::Reducer over its ProcessGroupGloo) at work on a learner's gradients.
/// While it lives, a backward pass returns when the averages over all ranks are there. Ranks: all,
/// with the same steps.
class DataParallelEngine {
 public:
  virtual ~DataParallelEngine() = default;
  DataParallelEngine(const DataParallelEngine&) = delete;
  DataParallelEngine& operator=(const DataParallelEngine&) = delete;
  /// Before the forward pass of each step.
  virtual void begin_step() = 0;
  /// After the backward pass, until end_step().
  virtual const float* average(std::size_t parameter) = 0;
  virtual void end_step() = 0;
  /// Bytes of the engine's buckets, in the order in which it reduces them.
  [[nodiscard]] virtual std::vector<std::size_t> bucket_bytes() const = 0;

 protected:
  DataParallelEngine() = default;
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
  /// What the model keeps besides its parameters, BatchNorm's running statistics, is as at its
  /// making again.
  virtual void reset_statistics() = 0;
  /// Where weights and gradients lie.
  [[nodiscard]] virtual TensorMemory& memory() = 0;

  /// Called once per parameter in each backward pass, as soon as its gradient is whole; `gradient`
  /// is valid during the call, and for as long as memory().copies_wait() after it.
  using OnGradient = std::function<void(std::size_t parameter, const float* gradient)>;
  virtual void on_gradient(OnGradient callback) = 0;

  virtual void load(const Batch& batch) = 0;
  /// Keeps all samples to train on where the model computes, if that is not host memory and they
  /// leave room there: batches then need not be made and brought in each step.
  virtual void keep_samples(const Dataset& data) = 0;
  [[nodiscard]] virtual bool keeps_samples() const = 0;
  /// Queues a batch of kept samples, by their numbers, to be loaded by load_fetched().
  virtual void fetch(const std::vector<std::size_t>& samples) = 0;
  virtual void load_fetched() = 0;
  /// Stages in order, each after load() once.
  virtual void forward(int stage) = 0;
  /// After the last stage; backward() follows.
  virtual void compute_loss() = 0;
  /// What compute_loss() found, once memory().complete() was called after it.
  [[nodiscard]] virtual double loss() const = 0;
  virtual void backward() = 0;
  /// Share of labels that the model finds, in evaluation mode.
  virtual double accuracy(const Batch& batch) = 0;
  /// Hands the gradients to the library's own engine until that is destroyed; on_gradient then
  /// tells of this worker's gradients before they are averaged. The learner outlives it.
  /// @throws Error(environment) where the library has no engine
  virtual std::unique_ptr<DataParallelEngine> engine(EngineGroup& group, Bytes bucket) = 0;

 protected:
  Learner() = default;
};

/// Same seed, same weights on every rank.
/// @param threads of computation in this process
/// @param gpu its number among those the process sees; nullopt: host memory
/// @throws Error(environment) when the tensor library cannot use that GPU
std::unique_ptr<Learner> make_learner(const TrainingSpec& spec, std::uint64_t seed, int threads,
                                      std::optional<int> gpu);
/// Why this build's tensor library cannot compute on GPUs; empty when it can.
std::string why_no_gpu();

/// Why this build cannot run the engine; empty when it can.
std::string why_no_engine();
/// Ranks: all. @throws Error(environment) when they do not meet in time
std::unique_ptr<EngineGroup> join_engine(const EngineMeeting& meeting);

/// Version of the tensor library, and which linear algebra it runs on: Debian's own reference BLAS
/// is 30 times slower than OpenBLAS.
std::string learner_library();
bool has_fast_blas();

}  // namespace dynamiccl
