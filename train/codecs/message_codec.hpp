#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "train/codecs/gradient_codec.hpp"
#include "train/step/reducer.hpp"
#include "workers/clock.hpp"

namespace dynamiccl {

/// One worker's side of messages of encoded gradients: its frames, how long they took, and how many
/// bytes they have besides the formula's. Host memory; one thread.
class MessageCodec {
 public:
  /// Faults that tests plant are the last worker's.
  MessageCodec(const ExchangePlan& plan, int worker, int workers);

  /// As before the first step.
  void restart() { codec_->restart(); }
  /// Before the first message of each step.
  void begin_step();
  /// Room for the piece's frames.
  [[nodiscard]] std::size_t frame_limit(std::size_t piece) const;
  /// @param gradients the flat buffer, in which the piece's values become what is encoded
  /// @returns the frames' bytes, one part's behind the other's
  std::size_t encode(std::size_t piece, float* gradients, std::uint8_t* frames);
  /// Counts what this worker gives to the library for the piece, besides the formula's bytes. Not
  /// for what it sums itself.
  void count(std::size_t piece, std::size_t bytes);
  /// All of the plan's pieces as one message, which is counted.
  /// @param gradients the flat buffer, as for encode()
  /// @param frames takes the message and has room for more
  /// @returns the message's bytes
  std::size_t encode_all(float* gradients, std::vector<std::uint8_t>& frames);
  /// Runs `work` and adds its time.
  template <class F>
  void timed(double CodingFigures::*sum_us, F&& work) {
    const double start_us = now_us();
    work();
    coding_.*sum_us += now_us() - start_us;
  }

  [[nodiscard]] GradientCodec& codec() { return *codec_; }
  [[nodiscard]] const ExchangePlan& plan() const { return plan_; }
  [[nodiscard]] const std::vector<CodedPart>& parts(std::size_t piece) const {
    return parts_[piece];
  }
  [[nodiscard]] std::size_t state_bytes() const { return codec_->state_bytes(); }
  CodingFigures take_coding() {
    coding_.boundless = codec_->boundless();
    return std::exchange(coding_, CodingFigures{});
  }

 private:
  void shift_places(std::size_t piece, std::uint8_t* frames);

  bool last_;  ///< worker, who is faulty where any is
  ExchangePlan plan_;
  std::unique_ptr<GradientCodec> codec_;
  std::vector<std::vector<CodedPart>> parts_;  ///< of each piece
  CodingFigures coding_;
};

/// Who sums encoded messages in plain values, in the order in which they are added: a server.
class MessageDecoder {
 public:
  explicit MessageDecoder(const ExchangePlan& plan);
  /// Room for the piece's frames in that step of the worker who made them.
  [[nodiscard]] std::size_t frame_limit(std::size_t piece, std::uint64_t step) const;
  /// Of all pieces together.
  [[nodiscard]] std::size_t frame_limit(std::uint64_t step) const;
  /// Adds what the frames say.
  /// @param frames of one worker, `bytes` long
  /// @param sum of the piece's own elements
  /// @returns the bytes that were read
  /// @throws Error(data) where frames end beyond `bytes`
  std::size_t add(std::size_t piece, std::uint64_t step, const std::uint8_t* frames,
                  std::size_t bytes, float* sum) const;
  /// The same of all pieces, whose frames follow each other, to the flat buffer.
  void add_all(std::uint64_t step, const std::uint8_t* frames, std::size_t bytes, float* sum) const;
  /// After all workers' were added: signs become the majority's.
  void conclude(std::size_t piece, int workers, float* sum) const;

 private:
  ExchangePlan plan_;
  std::unique_ptr<GradientCodec> codec_;  ///< keeps nothing
  std::vector<std::vector<CodedPart>> parts_;
};

}  // namespace dynamiccl
