#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "train/spec/training.hpp"

namespace dynamiccl {

/// Samples as a model takes them: images as 3 x side x side floats, or token ids; one label per
/// image, or per token.
struct Batch {
  int count = 0;
  int side = 0;      ///< images
  int sequence = 0;  ///< tokens
  std::vector<float> pixels;
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> labels;
};

/// Labelled samples by index; the same on every rank. Thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  /// Samples to train on; those behind are held out.
  [[nodiscard]] virtual std::size_t training_size() const = 0;
  [[nodiscard]] virtual std::size_t held_out_size() const = 0;
  virtual void add_to(Batch& batch, std::size_t index) const = 0;
  /// What it is, with the SHA-256 of each file; what deviates from the published set (files that
  /// are missing, other numbers of samples) is named.
  [[nodiscard]] virtual std::string description() const = 0;
  /// SHA-256 of what it is; of files: of what `sha256sum` prints of them, in the description's
  /// order.
  [[nodiscard]] virtual std::string digest() const = 0;

 protected:
  Dataset() = default;
};

/// @throws Error(input) when a folder holds no known files, or one that is damaged
std::unique_ptr<Dataset> open_dataset(const TrainingSpec& spec);

/// CIFAR-10 binary version: data_batch_1 to 5.bin and test_batch.bin, 3073 bytes a record, 10,000
/// records each as published. Any number of them is taken.
std::unique_ptr<Dataset> open_cifar10(const std::string& folder);
/// IDX (MNIST): train-images-idx3-ubyte and its kin, brought to 3 x 32 x 32. Any number of
/// images is taken.
std::unique_ptr<Dataset> open_idx(const std::string& folder);

/// Which sample worker `worker` of `workers` takes as its `position`-th of step `step`: disjoint
/// over workers, in an order of its own in each epoch, which leaves out what fills no step of all
/// workers: 390 steps of 4 x 32 in 50,000 samples. Fewer samples than one step takes come in it
/// more than once. Whoever asks gets the same answer, so that one process can replay all workers.
class Sharding {
 public:
  Sharding(std::size_t samples, int workers, int batch, std::uint64_t seed);
  /// With parts of the data that stay each worker's own where they are not equal: a worker goes
  /// through its part again and again, in an order of its own each time.
  Sharding(std::size_t samples, int workers, const TrainingSpec& spec, std::uint64_t seed);
  [[nodiscard]] std::size_t sample(std::uint64_t step, int worker, int position);
  [[nodiscard]] std::uint64_t steps_per_epoch() const { return steps_per_epoch_; }

 private:
  /// One worker's part: places in `dealt_`, and the order of its present pass.
  struct Part {
    std::size_t first = 0;
    std::size_t count = 0;
    std::uint64_t pass = UINT64_MAX;
    std::vector<std::uint32_t> order;
  };
  void shuffle(std::uint64_t epoch);
  std::size_t of_part(std::uint64_t step, int worker, int position);
  std::vector<std::uint32_t> dealt_;  ///< to parts, one after the other
  std::vector<Part> parts_;           ///< empty: equal ones
  std::size_t samples_;
  std::size_t workers_;
  std::size_t batch_;
  std::uint64_t steps_per_epoch_;
  std::uint64_t seed_;
  std::uint64_t epoch_ = UINT64_MAX;
  std::vector<std::uint32_t> order_;
};

}  // namespace dynamiccl
