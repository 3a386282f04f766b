// Mean of the values that are not negative, mean of those that are, a bit for each.
#include "train/codecs/gradient_codec.hpp"
#include "train/codecs/loops/sign_loops.hpp"

namespace dynamiccl {
namespace {

std::size_t encode_onebit(const float* values, std::size_t count, std::uint8_t* frame) {
  const auto sums = run_loop<signs_and_sums_loop>(values, count, frame + 2 * kNumberBytes);
  const double positive = static_cast<double>(count) - sums[2];
  store_as(frame, static_cast<float>(positive > 0 ? sums[0] / positive : 0));
  store_as(frame + kNumberBytes, static_cast<float>(sums[2] > 0 ? sums[1] / sums[2] : 0));
  return 2 * kNumberBytes + (count + 7) / 8;
}
void add_onebit(const std::uint8_t* frame, std::size_t count, float scale, float* sum) {
  run_loop<add_bits_loop>(frame + 2 * kNumberBytes, count, scale * load_as<float>(frame),
                          scale * load_as<float>(frame + kNumberBytes), sum);
}

}  // namespace

std::unique_ptr<GradientCodec> make_onebit(const CodecSeat& seat) {
  return codec_at<PlainCodec<encode_onebit, add_onebit>>(seat);
}

}  // namespace dynamiccl
