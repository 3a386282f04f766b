#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "train/codecs/codec_loops.hpp"
#include "train/codecs/coded_parts.hpp"

namespace dynamiccl {

/// One worker's side of a codec: encodes its own gradients and keeps what they have not said yet,
/// element by element, so that it does not matter which gradients share a message. Host memory; one
/// thread.
class WorkerCodec {
 public:
  WorkerCodec(const ExchangePlan& plan, int worker, int workers);

  /// As before the first step.
  void restart();
  /// Before the first part of each step.
  void begin_step();
  /// What has not been sent is lost: a fault that tests plant.
  void forget();

  /// Room for a frame.
  [[nodiscard]] std::size_t frame_limit(const CodedPart& part) const;
  /// @param values the part's gradient, which becomes what is encoded
  /// @returns the frame's bytes
  std::size_t encode(const CodedPart& part, float* values, std::uint8_t* frame);

  /// Low rank, in three steps around two sums of all workers. The first message is the left
  /// factor, or where two would not be fewer bytes the values.
  std::size_t encode_left(const CodedPart& part, float* values, float* left);
  /// @param left the sum, orthonormal afterwards
  std::size_t encode_right(const CodedPart& part, const float* values, float* left, float* right);
  /// @param right the sum
  /// @param values become the sum of all workers
  void decode_factors(const CodedPart& part, const float* left, const float* right, float* values);
  [[nodiscard]] bool is_factored(const CodedPart& part) const;

  /// After the sum of all workers' frames: DIANA adds what it knows of them, and learns.
  /// @param sum of what frames say, which becomes that of the gradients
  void conclude(const CodedPart& part, float* sum);
  /// gTop-k: after the merge of all workers' frames, what was lost is kept.
  /// @param own this worker's frame as it was sent
  /// @param dropped by this worker's merges
  void conclude_merge(const CodedPart& part, const std::uint8_t* own, const std::uint8_t* merged,
                      std::vector<PlacedValue>& dropped);

  /// A sketch, in two steps around two sums of all workers. The cells, which must be fixed before
  /// they are summed; nothing where a gradient goes as it is.
  /// @returns the number of cells
  std::size_t encode_sketch(const CodedPart& part, float* values, float* cells);
  /// @param sums of fixed cells of all workers
  /// @param exact this worker's values of the places that the sums show, or all of them
  /// @returns the number of values
  std::size_t encode_found(const CodedPart& part, const float* values, const float* sums,
                           float* exact);
  /// @param exact the sum
  /// @param values become the sum of all workers
  void decode_found(const CodedPart& part, const float* exact, float* values) const;
  [[nodiscard]] bool is_sketched(const CodedPart& part) const;

  [[nodiscard]] const CodecSettings& settings() const { return settings_; }
  [[nodiscard]] std::uint64_t step() const { return step_; }
  [[nodiscard]] std::size_t state_bytes() const;
  /// How many values that are kept from step to step are no finite numbers.
  [[nodiscard]] std::uint64_t boundless() const;

 private:
  [[nodiscard]] std::size_t kept(const CodedPart& part) const;
  /// The same on every worker, or where quantised at random one of its own.
  [[nodiscard]] std::uint32_t key(const CodedPart& part, bool own) const;
  void compensate(const CodedPart& part, float* values);
  std::size_t encode_values(const CodedPart& part, const float* values, std::uint8_t* frame) const;
  std::size_t encode_drawn(const CodedPart& part, const float* values, std::uint8_t* frame) const;
  void keep_residual(const CodedPart& part, const float* values, const std::uint8_t* frame);
  void draw_directions(const CodedPart& part, std::size_t rank, std::vector<float>& right) const;
  void accumulate_momentum(const CodedPart& part, float* values);
  void forget_sent(const CodedPart& part, const std::uint8_t* frame);
  void learn(const CodedPart& part, const std::uint8_t* frame);
  void judge(const CodedPart& part, const float* values);

  CodecSettings settings_;
  std::uint64_t seed_;
  int worker_;
  int workers_;
  std::uint64_t step_ = 0;
  bool begun_ = false;
  std::vector<float> residual_;            ///< of every element, where something is kept back
  std::vector<float> momentum_;            ///< DGC's
  std::vector<std::vector<float>> right_;  ///< of each gradient: PowerSGD's last right factor
  std::vector<float> shift_;               ///< DIANA: what is known of this worker's gradients
  std::vector<float> all_shifts_;          ///< and of all workers' together
  /// A sketch's places, by the offset of the part.
  std::map<std::size_t, std::vector<std::uint32_t>> found_;
  // Bits by significance: squares of this step's values so far, and their mean in the last step.
  double squares_ = 0;
  std::size_t squared_ = 0;
  double mean_square_ = 0;
  int bits_ = kMostBits;  ///< of the part at hand
};

/// Adds what a gathered frame says, `scale` times it.
void add_frame(const CodecSettings& settings, const CodedPart& part, std::size_t kept,
               const std::uint8_t* frame, float scale, float* sum);
/// Adds what a worker's frame says, of any codec but low rank.
/// @param key of random-k's draw
void add_part(const CodecSettings& settings, const CodedPart& part, std::uint32_t key,
              std::size_t kept, const std::uint8_t* frame, float* sum);
/// Room for a frame of the part.
std::size_t frame_room(const CodecSettings& settings, const CodedPart& part, std::uint64_t step);
/// Values that a frame of the part has, sparse codecs.
std::size_t frame_kept(const CodecSettings& settings, const CodedPart& part, std::uint64_t step,
                       const std::uint8_t* frame);
/// Bytes of a frame in a message: what follows it begins there.
std::size_t frame_bytes(const CodecSettings& settings, const CodedPart& part, std::uint64_t step,
                        const std::uint8_t* frame);
/// The sum of all workers' frames of a gathered codec, in rank order.
/// @param frames of each worker, the part's own
void sum_frames(const CodecSettings& settings, const CodedPart& part, std::uint64_t step,
                const std::vector<const std::uint8_t*>& frames, float* sum);
/// What a sum of encoded values says (fp16, bf16, random-k).
/// @param key of random-k's draw
void decode_reduced(const CodecSettings& settings, const CodedPart& part, std::uint32_t key,
                    std::size_t kept, const std::uint8_t* frame, float* values);
/// What draws of a step depend on beside the part's place, and the seed of a worker's own draws.
std::uint64_t step_key(std::uint64_t seed, std::uint64_t step);
std::uint64_t worker_seed(std::uint64_t seed, int worker);
/// The draw that all workers share.
std::uint32_t shared_key(std::uint64_t seed, std::uint64_t step, const CodedPart& part);
/// What the library sums such a codec's message as.
DataType reduced_type(Codec codec);

}  // namespace dynamiccl
