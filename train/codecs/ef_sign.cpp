// Mean magnitude, a bit for each value.
#include "train/codecs/gradient_codec.hpp"
#include "train/codecs/loops/sign_loops.hpp"

namespace dynamiccl {
namespace {

std::size_t encode_scaled_signs(const float* values, std::size_t count, std::uint8_t* frame) {
  const auto sums = run_loop<signs_and_sums_loop>(values, count, frame + kNumberBytes);
  store_as(frame, static_cast<float>((sums[0] - sums[1]) /
                                     static_cast<double>(std::max<std::size_t>(count, 1))));
  return kNumberBytes + (count + 7) / 8;
}
void add_scaled_signs(const std::uint8_t* frame, std::size_t count, float scale, float* sum) {
  const float size = scale * load_as<float>(frame);
  run_loop<add_bits_loop>(frame + kNumberBytes, count, size, -size, sum);
}

}  // namespace

std::unique_ptr<GradientCodec> make_ef_sign(const CodecSeat& seat) {
  return codec_at<PlainCodec<encode_scaled_signs, add_scaled_signs>>(seat);
}

}  // namespace dynamiccl
