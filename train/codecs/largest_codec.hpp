#pragma once

#include "train/codecs/gradient_codec.hpp"
#include "train/codecs/loops/sparse_loops.hpp"

namespace dynamiccl {

/// Frames of the largest values, as many as the density says.
class LargestCodec : public GradientCodec {
 public:
  using GradientCodec::GradientCodec;
  void add(const CodedPart& part, std::uint64_t step, const std::uint8_t* frame, float scale,
           float* sum) const override {
    add_sparse(frame, kept(part, step), part.count, scale, sum);
  }

 protected:
  std::size_t encode_values(const CodedPart& part, const float* values,
                            std::uint8_t* frame) override {
    return encode_largest(values, part.count, kept(part, step()), frame);
  }
};

}  // namespace dynamiccl
