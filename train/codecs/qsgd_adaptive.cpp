// QSGD with more bits for gradients whose values are larger than this worker's usually are. A frame
// begins with them.
#include "core/vocabulary/error.hpp"
#include "train/codecs/gradient_codec.hpp"
#include "train/codecs/loops/level_loops.hpp"

namespace dynamiccl {
namespace {

std::size_t levels_bytes(std::size_t count, int bits) {
  return (count * static_cast<std::size_t>(bits) + 7) / 8 +
         kNumberBytes * ((count + kQsgdBucket - 1) / kQsgdBucket);
}

/// @throws Error(data) for bits that no worker chooses
int told_bits(const std::uint8_t* frame) {
  const auto bits = load_as<std::uint32_t>(frame);
  if (bits != 2 && bits != 4 && bits != 8)
    throw Error(ErrorKind::data, "a gradient's values have neither 2, 4 nor 8 bits");
  return static_cast<int>(bits);
}

class AdaptiveQsgd final : public GradientCodec {
 public:
  using GradientCodec::GradientCodec;
  [[nodiscard]] std::size_t frame_room(const CodedPart& part,
                                       std::uint64_t /*step*/) const override {
    return kNumberBytes + levels_bytes(part.count, kMostBits);
  }
  [[nodiscard]] std::size_t frame_bytes(const CodedPart& part, std::uint64_t /*step*/,
                                        const std::uint8_t* frame) const override {
    return kNumberBytes + levels_bytes(part.count, told_bits(frame));
  }
  void add(const CodedPart& part, std::uint64_t /*step*/, const std::uint8_t* frame, float scale,
           float* sum) const override {
    add_levels(frame + kNumberBytes, part.count, told_bits(frame), scale, sum);
  }

 protected:
  std::size_t encode_values(const CodedPart& part, const float* values,
                            std::uint8_t* frame) override {
    const int bits = judged_bits(part, values);
    store_as(frame, static_cast<std::uint32_t>(bits));
    return kNumberBytes +
           encode_levels(values, part.count, bits, own_key(part), frame + kNumberBytes);
  }
  void step_begins() override {
    mean_square_ = squared_ > 0 ? squares_ / static_cast<double>(squared_) : 0;
    squares_ = 0;
    squared_ = 0;
  }
  void lose_memory() override {
    squares_ = mean_square_ = 0;
    squared_ = 0;
  }

 private:
  int judged_bits(const CodedPart& part, const float* values) {
    const double length = norm(values, part.count);
    const double mean = length * length / static_cast<double>(part.count);
    squares_ += length * length;
    squared_ += part.count;
    constexpr double kLess = 1.0 / 16;  // a quarter of the usual magnitude
    if (mean_square_ <= 0 || !(mean < mean_square_)) return kMostBits;
    return mean >= kLess * mean_square_ ? kMostBits / 2 : kMostBits / 4;
  }

  // Squares of this step's values so far, and their mean in the last step.
  double squares_ = 0;
  std::size_t squared_ = 0;
  double mean_square_ = 0;
};

}  // namespace

std::unique_ptr<GradientCodec> make_qsgd_adaptive(const CodecSeat& seat) {
  return codec_at<AdaptiveQsgd>(seat);
}

}  // namespace dynamiccl
