#pragma once

#include <cstdint>
#include <vector>

#include "workers/train/compression/worker_codec.hpp"
#include "workers/train/worker_step.hpp"

namespace dynamiccl {

/// The oracle of encoded gradients: one process computes every worker's gradient in turn, encodes
/// each with that worker's own residual, and adds what comes out in rank order.
class CodecReplay {
 public:
  /// @param worker whose model computes, in any memory; gradients are encoded in the host's
  CodecReplay(const ExchangePlan& plan, TrainingWorker& worker);

  /// One step of all workers, from the worker's weights and momentum, which are those after it
  /// then.
  void step(std::uint64_t step);
  /// How far a weight may be off after the last step because the library adds 16-bit values in an
  /// order of its own; 0 where it cannot be.
  [[nodiscard]] double order_slack() const { return order_slack_; }

 private:
  void sum_piece(std::size_t piece);
  void sum_gathered(const CodedPart& part);
  void sum_reduced(const CodedPart& part);
  void sum_factored(const CodedPart& part);
  void note_slack();

  ExchangePlan plan_;
  TrainingWorker& worker_;
  std::vector<WorkerCodec> codecs_;                ///< of each worker
  std::vector<std::vector<float>> gradients_;      ///< of each worker
  std::vector<std::vector<std::uint8_t>> frames_;  ///< of each worker, the part at hand
  std::vector<float> sums_;
  double order_slack_ = 0;
};

}  // namespace dynamiccl
