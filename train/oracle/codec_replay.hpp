#pragma once

#include <cstdint>
#include <vector>

#include "train/codecs/gradient_codec.hpp"
#include "train/step/worker_step.hpp"

namespace dynamiccl {

/// Sums of all workers' encoded values in one process: each is encoded with that worker's own
/// residual, and what comes out is added in rank order.
class ReplayedSum {
 public:
  ReplayedSum(const ExchangePlan& plan, int workers);

  /// What each worker encodes next, in the flat buffer's order, which sum() uses up.
  std::vector<float>& values(int worker) { return values_[static_cast<std::size_t>(worker)]; }
  /// A step of one worker's codec by itself: `gradient` becomes what its frames say.
  void pass(int worker, std::vector<float>& gradient);
  /// One step of all workers' codecs.
  const std::vector<float>& sum();
  /// How far one of the last sums may be off because the library adds 16-bit values in an order of
  /// its own; 0 where it cannot be.
  [[nodiscard]] double order_slack() const { return order_slack_; }
  [[nodiscard]] int workers() const { return static_cast<int>(codecs_.size()); }

 private:
  /// A worker's codec, of a class that the plan's has.
  template <class Codec = GradientCodec>
  Codec& codec(std::size_t worker) {
    return static_cast<Codec&>(*codecs_[worker]);
  }
  /// The worker's values, encoded.
  const std::uint8_t* encoded(std::size_t worker, const CodedPart& part);
  void sum_piece(std::size_t piece);
  void sum_gathered(const CodedPart& part);
  void sum_decoded(const CodedPart& part);
  void sum_reduced(const CodedPart& part);
  void sum_factored(const CodedPart& part);
  void sum_merged(const CodedPart& part);
  void sum_sketched(const CodedPart& part);
  void note_slack();

  ExchangePlan plan_;
  std::vector<std::unique_ptr<GradientCodec>> codecs_;  ///< of each worker
  std::vector<std::vector<float>> values_;              ///< of each worker
  std::vector<std::vector<std::uint8_t>> frames_;       ///< of each worker, the part at hand
  std::vector<float> sums_;
  double order_slack_ = 0;
};

/// The oracle of encoded exchanges of all workers: one process does every worker's part in turn.
class CodecReplay {
 public:
  /// @param worker whose model computes, in any memory; gradients are encoded in the host's
  CodecReplay(const ExchangePlan& plan, const TrainingSpec& spec, TrainingWorker& worker);

  /// One round of all workers, from the worker's weights and momentum, which are those after it
  /// then. With local steps workers keep a momentum each, of this replay.
  void round();
  /// How far a weight may be off after the last round, as ReplayedSum::order_slack().
  [[nodiscard]] double order_slack() const;

 private:
  void step_of_all();
  void local_steps();

  TrainingSpec spec_;
  TrainingWorker& worker_;
  ReplayedSum sum_;
  std::uint64_t step_ = 0;                      ///< of each worker's data
  std::vector<std::vector<float>> velocities_;  ///< of each worker, with local steps
};

}  // namespace dynamiccl
