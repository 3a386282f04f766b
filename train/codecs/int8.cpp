// Eight bits: the largest magnitude becomes 127.
#include "train/codecs/gradient_codec.hpp"

namespace dynamiccl {
namespace {

/// Adding it leaves a float's whole part, rounded to the nearest, in the lowest bits.
constexpr float kRoundingShift = 12582912.0F;

DYN_LOOP void int8_loop(const float* values, std::size_t count, float inverse,
                        std::uint8_t* levels) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i)
    levels[i] = static_cast<std::uint8_t>(bits_of(values[i] * inverse + kRoundingShift));
}
DYN_LOOP void add_int8_loop(const std::uint8_t* levels, std::size_t count, float step, float* sum) {
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i)
    sum[i] += step * static_cast<float>(static_cast<std::int8_t>(levels[i]));
}

std::size_t encode_int8(const float* values, std::size_t count, std::uint8_t* frame) {
  constexpr float kMost = 127;
  const float step = run_loop<largest_loop>(values, count) / kMost;
  store_as(frame, step);
  run_loop<int8_loop>(values, count, step > 0 ? 1 / step : 0.0F, frame + kNumberBytes);
  return kNumberBytes + count;
}
void add_int8(const std::uint8_t* frame, std::size_t count, float scale, float* sum) {
  run_loop<add_int8_loop>(frame + kNumberBytes, count, scale * load_as<float>(frame), sum);
}

}  // namespace

std::unique_ptr<GradientCodec> make_int8(const CodecSeat& seat) {
  return codec_at<PlainCodec<encode_int8, add_int8>>(seat);
}

}  // namespace dynamiccl
