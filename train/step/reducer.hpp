#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace dynamiccl {

/// What a codec did in some steps, of one rank.
struct CodingFigures {
  int steps = 0;
  double encode_us = 0;
  double decode_us = 0;
  std::uint64_t message_bytes = 0;  ///< given to the library: not what stays on the rank
  std::uint64_t plain_bytes = 0;    ///< the same as plain values
  std::uint64_t formula_bytes = 0;  ///< the same by formula
  bool by_formula = true;           ///< false: bytes depend on values, for which no formula knows
  /// Values that are no finite numbers in what host codecs keep back: they stay for ever, and what
  /// is sent of them may look like a number.
  std::uint64_t boundless = 0;
};

/// How one piece is summed over all workers: the architecture's half of a method. Called by the
/// communication thread alone.
class Reducer {
 public:
  virtual ~Reducer() = default;
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;
  /// Before the first piece of a step and after the last one's sum.
  virtual void begin_step() {}
  virtual void finish_step() {}
  /// Starts or does the piece. Returns true when its sum is there already.
  virtual bool start(std::size_t piece) = 0;
  /// Blocks until the piece that was started first of those still open is there.
  virtual std::size_t finish_oldest() { return 0; }
  /// Bytes whose sending has not been seen to end; finish_push() waits for the oldest. What credit
  /// is counted by: a push ends without other workers, so workers may push in different orders.
  [[nodiscard]] virtual std::size_t pushing_bytes() const { return 0; }
  virtual void finish_push() {}
  /// Lets what is under way move on while nobody waits for it.
  virtual void progress() {}
  /// True when nothing is under way, of this worker's or of those that it serves.
  [[nodiscard]] virtual bool idle() const { return true; }
  /// Whether a second pass over all pieces, in reverse order, follows (DeAR).
  virtual bool second_pass() { return false; }
  virtual void second(std::size_t /*piece*/) {}
  /// Makes all ranks start the same pieces: replaces this rank's choice by the agreed one.
  virtual void agree(std::vector<std::size_t>& /*chosen*/) {}
  /// True on the rank whose choice counts, and where everyone may choose for himself.
  [[nodiscard]] virtual bool chooses() const { return true; }
  /// Between steps: the weights from which a colocated server that is the optimizer goes on, in
  /// host memory.
  virtual void take_weights(const float* /*weights*/) {}
  /// Between steps: the weights are at the start again, and what is kept of gradients too.
  virtual void restart() {}
  /// Since the last call, between steps; nullopt where nothing is encoded.
  virtual std::optional<CodingFigures> take_coding() { return std::nullopt; }
  [[nodiscard]] std::uint64_t sent_bytes() const { return sent_bytes_; }
  /// Memory for gradients besides the buffers it was given and staging_bytes(): at most a copy of
  /// them.
  [[nodiscard]] virtual std::size_t extra_bytes() const { return 0; }
  /// Page-locked host memory by way of which a GPU's gradients go: at most a copy of them.
  [[nodiscard]] virtual std::size_t staging_bytes() const { return 0; }

 protected:
  Reducer() = default;
  std::uint64_t sent_bytes_ = 0;
};

}  // namespace dynamiccl
