// 0 or the largest magnitude with its sign (values beyond 2.5 standard deviations are cut there),
// so that the expected value is the value.
#include "train/codecs/gradient_codec.hpp"
#include "train/codecs/loops/level_loops.hpp"

namespace dynamiccl {
namespace {

/// Sum of squares and largest magnitude, in one pass over memory.
DYN_LOOP std::array<double, 2> spread_loop(const float* values, std::size_t count) {
  std::array<double, 2> found{};
  for (std::size_t at = 0; at < count; at += kSumChunk) {
    const std::size_t some = std::min(kSumChunk, count - at);
    found[0] += squares_loop(values + at, some);
    found[1] = std::max<double>(found[1], largest_loop(values + at, some));
  }
  return found;
}
DYN_LOOP void ternary_loop(const float* values, std::size_t count, float inverse, std::uint32_t key,
                           std::uint8_t* packed) {
  Codes codes;
  for (std::size_t at = 0; at < count; at += kCodes) {
    const std::size_t some = std::min(kCodes, count - at);
    if (some < kCodes) codes.fill(0);
    levels_loop(values + at, some, inverse, key, at, 1, codes.data());
    pack_codes(codes.data(), some, 2, packed + at / 4);
  }
}
DYN_LOOP void add_ternary_loop(const std::uint8_t* packed, std::size_t count, float step,
                               float* sum) {
  Codes codes;
  for (std::size_t at = 0; at < count; at += kCodes) {
    const std::size_t some = std::min(kCodes, count - at);
    unpack_codes(packed + at / 4, some, 2, codes.data());
    add_levels_loop(codes.data(), some, step, 1, sum + at);
  }
}
std::size_t encode_ternary(const float* values, std::size_t count, std::uint32_t key,
                           std::uint8_t* frame) {
  constexpr double kDeviations = 2.5;
  const auto [squares, most] = run_loop<spread_loop>(values, count);
  const double spread = std::sqrt(squares / static_cast<double>(std::max<std::size_t>(count, 1)));
  const auto largest = static_cast<float>(std::min(most, kDeviations * spread));
  store_as(frame, largest);
  run_loop<ternary_loop>(values, count, largest > 0 ? 1 / largest : 0.0F, key,
                         frame + kNumberBytes);
  return kNumberBytes + (count + 3) / 4;
}
void add_ternary(const std::uint8_t* frame, std::size_t count, float scale, float* sum) {
  run_loop<add_ternary_loop>(frame + kNumberBytes, count, scale * load_as<float>(frame), sum);
}

}  // namespace

std::unique_ptr<GradientCodec> make_terngrad(const CodecSeat& seat) {
  return codec_at<PlainCodec<encode_ternary, add_ternary>>(seat);
}

}  // namespace dynamiccl
