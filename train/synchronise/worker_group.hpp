#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "train/codecs/message_codec.hpp"
#include "train/exchange/ring_halves.hpp"
#include "train/plan/exchange_plan.hpp"
#include "workers/group_messages.hpp"

namespace dynamiccl {

/// The plan of what travels within groups: `spec.group_compression` of a message of all gradients.
ExchangePlan group_plan(const ExchangePlan& plan, const TrainingSpec& spec);
/// Bytes that a member may hold for it: a message of each member, as long as in the first step at
/// most, and what is kept back; of a plain sum what comes around the ring. 0 without groups.
std::size_t group_limit_bytes(const ExchangePlan& plan, const TrainingSpec& spec);

/// One sum of a group.
struct GroupSum {
  std::size_t bytes = 0;  ///< what a member gives: plain gradients, or its encoded message
  double start_us = 0;    ///< of its messages, without a codec's work before and after them
  double end_us = 0;
};

/// Workers that sum their gradients around a ring of their own, or, encoded, from each to each; the
/// first one speaks with the server for all of them. Ranks: all of the group call the same. Host
/// memory.
class WorkerGroup {
 public:
  /// @param plan of the group, group_plan()
  /// @param worker this rank's number among all `workers`
  /// @param gradients plan.elements(), replaced by sums; outlives this object
  WorkerGroup(Messages& all, const ExchangePlan& plan, int worker, int workers, int size,
              float* gradients);
  /// The worker is at the start.
  void restart() {
    if (codec_) codec_->restart();
  }
  [[nodiscard]] bool leads() const { return group_.rank() == 0; }
  /// Gradients become the group's sum, the same bits on each.
  GroupSum sum();
  /// Of the group's losses.
  double mean(double loss);
  /// The first one's bytes come to the others.
  void share(void* data, std::size_t bytes);
  [[nodiscard]] std::uint64_t sent_bytes() const {
    return sent_bytes_ + (ring_ ? ring_->sent_bytes() : 0);
  }
  [[nodiscard]] const ExchangePlan& plan() const { return plan_; }
  /// Of the group's own messages since the last call; nullopt where nothing is encoded.
  std::optional<CodingFigures> take_coding() {
    if (!codec_) return std::nullopt;
    return codec_->take_coding();
  }
  [[nodiscard]] std::size_t held_bytes() const {
    std::size_t bytes = ring_ ? ring_->extra_bytes() : 0;
    for (const auto& frames : frames_) bytes += frames.size();
    return bytes + (codec_ ? codec_->state_bytes() : 0);
  }

 private:
  GroupSum sum_encoded();

  ExchangePlan plan_;
  GroupMessages group_;
  std::optional<RingHalves> ring_;  ///< of plain sums
  float* gradients_;
  std::optional<MessageCodec> codec_;
  std::optional<MessageDecoder> decoder_;
  std::vector<std::vector<std::uint8_t>> frames_;  ///< of each member, where they are encoded
  std::uint64_t sent_bytes_ = 0;
};

}  // namespace dynamiccl
