#pragma once

#include "train/codecs/gradient_codec.hpp"

namespace dynamiccl {

/// Two thin factors of a matrix in three steps around two sums of all workers. Gradients of which
/// two would not be fewer bytes go as they are, in the first message.
class PowerSgd final : public GradientCodec {
 public:
  explicit PowerSgd(const CodecSeat& seat);

  /// Floats of each message.
  [[nodiscard]] std::size_t left_floats(const CodedPart& part) const;
  [[nodiscard]] std::size_t right_floats(const CodedPart& part) const;
  /// @param values the part's gradient, which becomes what is encoded
  /// @returns the floats of `left`
  std::size_t encode_left(const CodedPart& part, float* values, float* left);
  /// @param left the sum, orthonormal afterwards
  std::size_t encode_right(const CodedPart& part, const float* values, float* left, float* right);
  /// @param right the sum
  /// @param values become the sum of all workers
  void decode_factors(const CodedPart& part, const float* left, const float* right, float* values);
  [[nodiscard]] bool is_factored(const CodedPart& part) const {
    return dynamiccl::is_factored(settings().rank, part.rows, part.count);
  }

 private:
  void draw_directions(const CodedPart& part, std::vector<float>& right) const;
  [[nodiscard]] std::size_t other_floats() const override;
  [[nodiscard]] std::size_t rank() const { return static_cast<std::size_t>(settings().rank); }

  std::vector<std::vector<float>> right_;  ///< of each gradient: the last right factor
};

}  // namespace dynamiccl
