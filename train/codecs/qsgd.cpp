// QSGD: levels of the norm of some neighbours, rounded at random.
#include "train/codecs/gradient_codec.hpp"
#include "train/codecs/loops/level_loops.hpp"

namespace dynamiccl {
namespace {

DYN_LOOP void qsgd_loop(const float* values, std::size_t count, int bits, std::uint32_t key,
                        std::uint8_t* norms, std::uint8_t* packed) {
  static_assert(kQsgdBucket <= kCodes);
  Codes codes;
  const int most = (1 << (bits - 1)) - 1;
  const auto width = static_cast<std::size_t>(bits);
  for (std::size_t at = 0; at < count; at += kQsgdBucket) {
    const std::size_t some = std::min(kQsgdBucket, count - at);
    const auto length = static_cast<float>(std::sqrt(squares_loop(values + at, some)));
    store_as(norms + 4 * (at / kQsgdBucket), length);
    if (some < kQsgdBucket) codes.fill(0);
    const float factor = length > 0 ? static_cast<float>(most) / length : 0.0F;
    levels_loop(values + at, some, factor, key, at, most, codes.data());
    pack_codes(codes.data(), some, bits, packed + at * width / 8);
  }
}
DYN_LOOP void add_qsgd_loop(const std::uint8_t* norms, const std::uint8_t* packed,
                            std::size_t count, int bits, float scale, float* sum) {
  Codes codes;
  const int most = (1 << (bits - 1)) - 1;
  const auto width = static_cast<std::size_t>(bits);
  for (std::size_t at = 0; at < count; at += kQsgdBucket) {
    const std::size_t some = std::min(kQsgdBucket, count - at);
    unpack_codes(packed + at * width / 8, some, bits, codes.data());
    const float step =
        scale * load_as<float>(norms + 4 * (at / kQsgdBucket)) / static_cast<float>(most);
    add_levels_loop(codes.data(), some, step, most, sum + at);
  }
}

class Qsgd final : public GradientCodec {
 public:
  using GradientCodec::GradientCodec;
  void add(const CodedPart& part, std::uint64_t /*step*/, const std::uint8_t* frame, float scale,
           float* sum) const override {
    add_levels(frame, part.count, value_bits(settings(), part.count), scale, sum);
  }

 protected:
  std::size_t encode_values(const CodedPart& part, const float* values,
                            std::uint8_t* frame) override {
    return encode_levels(values, part.count, value_bits(settings(), part.count), own_key(part),
                         frame);
  }
};

}  // namespace

std::size_t encode_levels(const float* values, std::size_t count, int bits, std::uint32_t key,
                          std::uint8_t* frame) {
  const std::size_t norms = kNumberBytes * ((count + kQsgdBucket - 1) / kQsgdBucket);
  run_loop<qsgd_loop>(values, count, bits, key, frame, frame + norms);
  return norms + (count * static_cast<std::size_t>(bits) + 7) / 8;
}
void add_levels(const std::uint8_t* frame, std::size_t count, int bits, float scale, float* sum) {
  const std::size_t norms = kNumberBytes * ((count + kQsgdBucket - 1) / kQsgdBucket);
  run_loop<add_qsgd_loop>(frame, frame + norms, count, bits, scale, sum);
}

std::unique_ptr<GradientCodec> make_qsgd(const CodecSeat& seat) { return codec_at<Qsgd>(seat); }

}  // namespace dynamiccl
