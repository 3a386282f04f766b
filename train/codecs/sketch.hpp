#pragma once

#include <map>

#include "train/codecs/gradient_codec.hpp"

namespace dynamiccl {

/// A count sketch in two steps around two sums of all workers: every value is added, with a random
/// sign, to one random cell of each row; the sum shows which values are large, which then go by
/// themselves. Gradients of which that would not be fewer bytes go as they are.
class Sketch final : public GradientCodec {
 public:
  using GradientCodec::GradientCodec;

  /// Floats of each message.
  [[nodiscard]] std::size_t cells(const CodedPart& part) const;
  [[nodiscard]] std::size_t found(const CodedPart& part) const;
  /// The cells of kSketchRows rows, one behind the other, which must be fixed before they are
  /// summed.
  /// @param values the part's gradient, which becomes what is encoded
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

 private:
  [[nodiscard]] bool is_sketched(const CodedPart& part) const {
    return dynamiccl::is_sketched(settings(), part.count, step());
  }
  [[nodiscard]] std::size_t other_floats() const override;

  std::map<std::size_t, std::vector<std::uint32_t>> places_;  ///< by the offset of the part
};

/// Largest magnitude; infinite where one is infinite or no number.
float largest_cell(const float* cells, std::size_t count);
/// Cells become whole numbers of 32 bits, whose sums are the same in any order.
/// @param bound of all workers' sums of a cell; where it is infinite, cells become 1 that are no
/// numbers and 0 that are: sums show where those values are, which then go to all
void fix_cells(float* cells, std::size_t count, double bound);

}  // namespace dynamiccl
