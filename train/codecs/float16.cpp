// Values as 16-bit floats, which the library adds.
#include "train/codecs/gradient_codec.hpp"

namespace dynamiccl {
namespace {

DYN_LOOP void float16_loop(const float* values, std::size_t count, std::uint8_t* frame) {
  for (std::size_t i = 0; i < count; ++i) store_as(frame + 2 * i, static_cast<_Float16>(values[i]));
}
DYN_LOOP void from_float16_loop(const std::uint8_t* frame, std::size_t count, float* values) {
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(load_as<_Float16>(frame + 2 * i));
}
DYN_LOOP void bfloat16_loop(const float* values, std::size_t count, std::uint8_t* frame) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = bits_of(values[i]);
    const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
    // A NaN must not round up into infinity.
    const bool nan = (bits & ~kSignBit) > 0x7F800000U;
    store_as(frame + 2 * i, static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40U : rounded));
  }
}
DYN_LOOP void from_bfloat16_loop(const std::uint8_t* frame, std::size_t count, float* values) {
  for (std::size_t i = 0; i < count; ++i)
    values[i] = of_bits(static_cast<std::uint32_t>(load_as<std::uint16_t>(frame + 2 * i)) << 16);
}

/// Either format, of which the exponent of the last kept bit is known.
template <auto kEncode, auto kDecode, DataType kType, int kRoundingBits>
class Half final : public GradientCodec {
 public:
  using GradientCodec::GradientCodec;
  void add(const CodedPart& part, std::uint64_t /*step*/, const std::uint8_t* frame, float scale,
           float* sum) const override {
    std::array<float, 1024> decoded;
    for (std::size_t at = 0; at < part.count; at += decoded.size()) {
      const std::size_t some = std::min(decoded.size(), part.count - at);
      run_loop<kDecode>(frame + 2 * at, some, decoded.data());
      for (std::size_t i = 0; i < some; ++i) sum[at + i] += scale * decoded[i];
    }
  }
  void decode(const CodedPart& part, std::uint64_t /*step*/, const std::uint8_t* frame,
              float* values) const override {
    run_loop<kDecode>(frame, part.count, values);
  }
  [[nodiscard]] DataType reduced_type() const override { return kType; }
  [[nodiscard]] double reduced_rounding() const override { return 1.0 / (1 << kRoundingBits); }

 protected:
  std::size_t encode_values(const CodedPart& part, const float* values,
                            std::uint8_t* frame) override {
    run_loop<kEncode>(values, part.count, frame);
    return 2 * part.count;
  }
};

using Float16 = Half<float16_loop, from_float16_loop, DataType::float16, 11>;
using Bfloat16 = Half<bfloat16_loop, from_bfloat16_loop, DataType::bfloat16, 8>;

}  // namespace

std::unique_ptr<GradientCodec> make_float16(const CodecSeat& seat) {
  return codec_at<Float16>(seat);
}
std::unique_ptr<GradientCodec> make_bfloat16(const CodecSeat& seat) {
  return codec_at<Bfloat16>(seat);
}

}  // namespace dynamiccl
