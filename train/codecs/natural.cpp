// Powers of two, rounded at random; what is below 2^-126 of the largest becomes 0.
#include "train/codecs/gradient_codec.hpp"

namespace dynamiccl {
namespace {

constexpr std::int32_t kPowers = 127;  ///< a sign and so many exponents make a byte, 0 is zero

DYN_LOOP void powers_loop(const float* values, std::size_t count, std::int32_t most,
                          std::uint32_t key, std::uint8_t* bytes) {
  const std::int32_t base = most - kPowers;
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = bits_of(values[i]);
    // The fraction is the chance of the next power: a random one overflows into it as often.
    const std::uint32_t chance = random_word(key, static_cast<std::uint32_t>(i)) >> 9;
    const auto exponent = static_cast<std::int32_t>(((bits & ~kSignBit) + chance) >> 23);
    const std::int32_t above = exponent - base;
    const std::int32_t kept = exponent > 0 && above > 0 ? above : 0;
    bytes[i] = static_cast<std::uint8_t>(static_cast<std::uint32_t>(kept) | ((bits >> 24) & 0x80U));
  }
}
DYN_LOOP void add_powers_loop(const std::uint8_t* bytes, std::size_t count, std::int32_t most,
                              float scale, float* sum) {
  const std::int32_t base = most - kPowers;
#pragma GCC ivdep
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t above = bytes[i] & 0x7F;
    const auto magnitude = static_cast<std::uint32_t>(above > 0 ? above + base : 0) << 23;
    sum[i] += scale * of_bits(magnitude | ((bytes[i] & 0x80U) << 24));
  }
}

std::size_t encode_powers(const float* values, std::size_t count, std::uint32_t key,
                          std::uint8_t* frame) {
  const auto most =
      static_cast<std::int32_t>(bits_of(run_loop<largest_loop>(values, count)) >> 23) + 1;
  store_as(frame, most);
  run_loop<powers_loop>(values, count, most, key, frame + kNumberBytes);
  return kNumberBytes + count;
}
void add_powers(const std::uint8_t* frame, std::size_t count, float scale, float* sum) {
  run_loop<add_powers_loop>(frame + kNumberBytes, count, load_as<std::int32_t>(frame), scale, sum);
}

}  // namespace

std::unique_ptr<GradientCodec> make_natural(const CodecSeat& seat) {
  return codec_at<PlainCodec<encode_powers, add_powers>>(seat);
}

}  // namespace dynamiccl
