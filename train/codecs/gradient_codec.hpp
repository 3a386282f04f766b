#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "train/codecs/coded_parts.hpp"
#include "train/codecs/loops/loops.hpp"
#include "train/codecs/loops/random_words.hpp"

namespace dynamiccl {

/// Whose codec it is, of how many workers. The plan is read only while the codec is made.
struct CodecSeat {
  const ExchangePlan& plan;
  int worker;
  int workers;
};
/// The worker of a codec that only reads the frames of others and keeps nothing.
inline constexpr int kReader = -1;

/// A codec: what its frames say, and one worker's side of it, which encodes that worker's gradients
/// and keeps what they have not said yet, element by element, so that it does not matter which
/// gradients share a message. Each codec is a class in a source of its own, with what it keeps
/// besides the residual, and a row of codec_table.cpp. Host memory; one thread.
class GradientCodec {
 public:
  explicit GradientCodec(const CodecSeat& seat);
  virtual ~GradientCodec() = default;
  GradientCodec(const GradientCodec&) = delete;
  GradientCodec& operator=(const GradientCodec&) = delete;

  /// As before the first step.
  void restart();
  /// Before the first part of each step.
  void begin_step();
  /// What has not been sent is lost: a fault that tests plant.
  void forget();

  /// @param values the part's gradient, which becomes what is encoded
  /// @returns the frame's bytes, at most frame_room() of this step
  std::size_t encode(const CodedPart& part, float* values, std::uint8_t* frame);
  /// After the sum of all workers' frames, which becomes that of the gradients.
  virtual void conclude(const CodedPart&, float* /*sum*/) {}

  // Of frames of any worker, in a step of that one.

  /// Room for a frame: the formula's bytes where it has some.
  [[nodiscard]] virtual std::size_t frame_room(const CodedPart& part, std::uint64_t step) const;
  /// Bytes of this frame: what follows it in a message begins there.
  [[nodiscard]] virtual std::size_t frame_bytes(const CodedPart& part, std::uint64_t step,
                                                const std::uint8_t* /*frame*/) const {
    return frame_room(part, step);
  }
  /// Adds `scale` times what the frame says.
  virtual void add(const CodedPart& part, std::uint64_t step, const std::uint8_t* frame,
                   float scale, float* sum) const;
  /// What a sum of frames says, where the library adds what is encoded, and of which type it is.
  virtual void decode(const CodedPart&, std::uint64_t /*step*/, const std::uint8_t* /*frame*/,
                      float* /*values*/) const {}
  [[nodiscard]] virtual DataType reduced_type() const { return DataType::float32; }
  /// Most that the library's order of additions changes, as a part of the sum of magnitudes; 0
  /// where sums are plain.
  [[nodiscard]] virtual double reduced_rounding() const { return 0; }
  /// After so many workers' frames were added.
  virtual void take_vote(float* /*sum*/, std::size_t /*count*/, int /*workers*/) const {}
  /// The sum of all workers' frames, in rank order.
  void sum_frames(const CodedPart& part, std::uint64_t step,
                  const std::vector<const std::uint8_t*>& frames, float* sum) const;

  /// Values of a part that are kept, where the density says it.
  [[nodiscard]] std::size_t kept(const CodedPart& part, std::uint64_t step) const {
    return kept_values(density_at(settings_, step), part.count);
  }
  [[nodiscard]] const CodecSettings& settings() const { return settings_; }
  [[nodiscard]] std::uint64_t step() const { return step_; }
  [[nodiscard]] std::size_t state_bytes() const;
  /// How many values that are kept from step to step are no finite numbers.
  [[nodiscard]] std::uint64_t boundless() const;

 protected:
  /// The frame of these values, compensated.
  virtual std::size_t encode_values(const CodedPart& part, const float* values,
                                    std::uint8_t* frame);
  /// Before and after: what was kept back is added, and what this frame does not say is kept.
  virtual void compensate(const CodedPart& part, float* values);
  virtual void keep(const CodedPart& part, const float* values, const std::uint8_t* frame);
  /// For codecs with a memory of their own: before each step, and when it is to be lost.
  virtual void step_begins() {}
  virtual void lose_memory() {}
  /// Other memory than that of memories_.
  [[nodiscard]] virtual std::size_t other_floats() const { return 0; }

  /// So many floats that are kept from step to step, 0 in the beginning; none of a reader.
  void remember(std::vector<float>& memory);
  /// The part of the residual; nullptr where nothing is kept back.
  float* residual(const CodedPart& part) {
    return residual_.empty() ? nullptr : &residual_[part.offset];
  }
  /// The draw that all workers share.
  [[nodiscard]] std::uint32_t shared_key(const CodedPart& part, std::uint64_t step) const;
  /// A draw of this worker's own.
  [[nodiscard]] std::uint32_t own_key(const CodedPart& part) const;
  [[nodiscard]] int workers() const { return workers_; }

 private:
  CodecSettings settings_;
  std::uint64_t seed_;
  int worker_;
  int workers_;
  std::size_t elements_;
  std::uint64_t step_ = 0;
  bool begun_ = false;
  std::vector<float> residual_;  ///< of every element, where something is kept back
  std::vector<std::vector<float>*> memories_;
};

using CodecMaker = std::unique_ptr<GradientCodec>(const CodecSeat& seat);
/// Of the plan's codec, which is one.
CodecMaker make_codec;

template <class Codec>
std::unique_ptr<GradientCodec> codec_at(const CodecSeat& seat) {
  return std::make_unique<Codec>(seat);
}

/// A codec of which a pair of functions is all: of values and their number to the frame's bytes,
/// and of a frame, its scale and a number to a sum.
template <auto kEncode, auto kAdd>
class PlainCodec : public GradientCodec {
 public:
  using GradientCodec::GradientCodec;
  void add(const CodedPart& part, std::uint64_t /*step*/, const std::uint8_t* frame, float scale,
           float* sum) const override {
    kAdd(frame, part.count, scale, sum);
  }

 protected:
  std::size_t encode_values(const CodedPart& part, const float* values,
                            std::uint8_t* frame) override {
    if constexpr (requires { kEncode(values, part.count, frame); })
      return kEncode(values, part.count, frame);
    else
      return kEncode(values, part.count, own_key(part), frame);
  }
};

/// What draws of a step depend on besides the part's place, and the seed of a worker's own draws.
std::uint64_t step_key(std::uint64_t seed, std::uint64_t step);
std::uint64_t worker_seed(std::uint64_t seed, int worker);
/// The draw that all workers share.
std::uint32_t shared_key(std::uint64_t seed, std::uint64_t step, const CodedPart& part);

}  // namespace dynamiccl
