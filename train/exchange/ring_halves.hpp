#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "train/plan/exchange_plan.hpp"
#include "workers/messages.hpp"

namespace dynamiccl {

/// An all-reduce of our own of the plan's pieces in host memory, a ring in two halves: for what a
/// library's cannot do apart (DeAR), cannot pack (ExchangePlan::packing), or does more slowly
/// (GradientPath::own_ring). Sums come out as the
/// same bits on every rank.
class RingHalves {
 public:
  /// Where the part of this number begins in a piece of so many values; of number `ranks`: its end.
  /// Its sum begins with the values of the rank of its number, to which the next ranks' are added
  /// around the ring.
  [[nodiscard]] static std::size_t part_begin(std::size_t count, std::size_t ranks,
                                              std::size_t number) {
    return count * number / ranks;
  }
  /// @param gradients plan.elements(); replaced by sums. Plan and buffer outlive this object.
  RingHalves(Messages& comm, const ExchangePlan& plan, float* gradients);

  /// The first half: afterwards this rank holds the sum of the part after its own.
  void reduce_scatter(std::size_t piece);
  /// The second half, after the first of the same piece.
  void all_gather(std::size_t piece);
  /// Both. Two ranks that pack swap whole pieces instead: the same bytes in half of the turns.
  void all_reduce(std::size_t piece);

  [[nodiscard]] std::uint64_t sent_bytes() const { return sent_bytes_; }
  /// Memory besides the gradients.
  [[nodiscard]] std::size_t extra_bytes() const;

 private:
  /// Values of one rank's part of a piece.
  struct Part {
    float* data;
    std::size_t count;
  };
  enum class What { add, replace };
  [[nodiscard]] Part part(std::size_t index, int number) const;
  /// Sends `send` to the next rank and takes `into` from the one before.
  void pass(Part send, Part into, What what);
  void pass_packed(Part send, Part into, What what);
  void send_frame(Part send, std::size_t frame);
  void post_frame(Part into, std::size_t frame);
  void take_frame(Part into, std::size_t frame, What what);
  [[nodiscard]] bool swaps() const {
    return comm_.size() == 2 && plan_.packing == Packing::exponents;
  }
  [[nodiscard]] int next() const { return (comm_.rank() + 1) % comm_.size(); }
  [[nodiscard]] int before() const { return (comm_.rank() + comm_.size() - 1) % comm_.size(); }

  /// Frames of a part under way at once: while one is unpacked others are on the wire.
  static constexpr std::size_t kUnderWay = 4;
  struct Slot {
    std::vector<std::uint8_t> sent, received;
    Request sending{}, receiving{};
  };

  Messages& comm_;
  const ExchangePlan& plan_;
  float* gradients_;
  std::vector<float> received_;  ///< a part, or what a frame held
  std::array<Slot, kUnderWay> slots_;
  std::uint64_t sent_bytes_ = 0;
};

}  // namespace dynamiccl
