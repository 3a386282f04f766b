#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "train/codecs/message_codec.hpp"
#include "train/spec/training.hpp"
#include "workers/communicator.hpp"

namespace dynamiccl {

/// What a worker of CHOCO-SGD knows besides its weights (Koloskova et al., 2019, algorithm 6):
/// everyone's weights as far as they were sent are a replica, and only the way that weights went
/// from their replica is sent, encoded.
struct ChocoState {
  std::vector<float> replica;  ///< of this worker's own weights
  std::vector<float> mixed;    ///< of the neighbours' and the own replica, by the mixing's weights
  /// All begin with the same weights, which all know.
  void begin(const std::vector<float>& weights) { replica = mixed = weights; }
};

/// What was sent of one worker, in the order of workers: its replica goes so far, and with it the
/// mixed one.
/// @param share that the mixing gives to that worker
/// @param own whether it is this worker itself
void choco_take(ChocoState& state, const std::vector<float>& sent, float share, bool own);
/// Weights go half of the way from the own replica to the mixed one.
void choco_go(const ChocoState& state, float* weights);

/// Swaps encoded ways with the neighbours of a topology that is the same in all rounds. Host
/// memory; one thread.
class ChocoAverage {
 public:
  /// @param silence as NeighbourAverage's
  ChocoAverage(Communicator& comm, const ExchangePlan& plan, const TrainingSpec& spec,
               Micros silence);
  /// Before the first round: the weights that all workers have.
  void begin(const std::vector<float>& weights);
  [[nodiscard]] bool has_begun() const { return !state_.replica.empty(); }
  /// As before the first round.
  void restart();
  /// Ranks: all, each is the worker of its number.
  /// @param weights become the new ones
  void average(float* weights);
  [[nodiscard]] std::uint64_t sent_bytes() const { return sent_bytes_; }
  [[nodiscard]] std::size_t held_bytes() const;
  CodingFigures take_coding() { return messages_.take_coding(); }

 private:
  std::size_t encode(const float* weights);
  void swap(std::size_t bytes);

  Communicator& comm_;
  Micros silence_;
  Mixing mixing_;
  MessageCodec messages_;
  MessageDecoder decoder_;
  ChocoState state_;
  std::vector<float> values_;                      ///< what is encoded, or what frames say
  std::vector<std::uint8_t> own_;                  ///< frames
  std::vector<std::vector<std::uint8_t>> frames_;  ///< of each neighbour
  std::uint64_t round_ = 0;
  std::uint64_t sent_bytes_ = 0;
};

}  // namespace dynamiccl
