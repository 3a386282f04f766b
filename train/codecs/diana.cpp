// DIANA: QSGD of how far a gradient is from what is known of it, which each frame adds to.
#include "train/codecs/gradient_codec.hpp"
#include "train/codecs/loops/level_loops.hpp"

namespace dynamiccl {
namespace {

class Diana final : public GradientCodec {
 public:
  explicit Diana(const CodecSeat& seat) : GradientCodec(seat) {
    remember(shift_);
    remember(all_shifts_);
  }
  void add(const CodedPart& part, std::uint64_t /*step*/, const std::uint8_t* frame, float scale,
           float* sum) const override {
    add_levels(frame, part.count, value_bits(settings(), part.count), scale, sum);
  }
  void conclude(const CodedPart& part, float* sum) override {
    const float rate = rate_of(part);
    float* known = &all_shifts_[part.offset];
    for (std::size_t i = 0; i < part.count; ++i) {
      const float difference = sum[i];
      sum[i] = known[i] + difference;
      known[i] += rate * difference;
    }
  }

 protected:
  void compensate(const CodedPart& part, float* values) override {
    const float* shift = &shift_[part.offset];
    for (std::size_t i = 0; i < part.count; ++i) values[i] -= shift[i];
  }
  std::size_t encode_values(const CodedPart& part, const float* values,
                            std::uint8_t* frame) override {
    return encode_levels(values, part.count, value_bits(settings(), part.count), own_key(part),
                         frame);
  }
  /// What was decoded, in part, is known from now on.
  void keep(const CodedPart& part, const float* /*values*/, const std::uint8_t* frame) override {
    add(part, step(), frame, rate_of(part), &shift_[part.offset]);
  }

 private:
  [[nodiscard]] float rate_of(const CodedPart& part) const {
    return static_cast<float>(shift_rate_of(settings(), part.count));
  }

  std::vector<float> shift_;       ///< what is known of this worker's gradients
  std::vector<float> all_shifts_;  ///< and of all workers' together
};

}  // namespace

std::unique_ptr<GradientCodec> make_diana(const CodecSeat& seat) { return codec_at<Diana>(seat); }

}  // namespace dynamiccl
