// 3LC: -1, 0 or 1 times the largest magnitude, to the nearest; five of them in a byte of base 3,
// runs of zeros in one: how many bytes follow, the largest magnitude, the bytes.
#include "train/codecs/gradient_codec.hpp"

namespace dynamiccl {
namespace {

// Five digits of base 3 in a byte; bytes from kRunBase on are runs of two or more kZeros.
constexpr std::size_t kDigits = 5;
constexpr std::uint8_t kZeros = 121;     // five digits of 1, which stands for 0
constexpr std::uint8_t kRunBase = 243;   // 3^5: no digits say it
constexpr std::size_t kLongestRun = 14;  // 255 - 243 + 2

/// What five digits of the values from `at` on are, -1, 0 and 1 as 0, 1 and 2.
std::uint8_t five_digits(const float* values, std::size_t count, std::size_t at, float least) {
  unsigned byte = 0;
  for (std::size_t i = at; i < at + kDigits; ++i) {
    unsigned digit = 1;
    if (i < count && std::fabs(values[i]) >= least && least > 0)
      digit = std::signbit(values[i]) ? 0 : 2;
    byte = 3 * byte + digit;
  }
  return static_cast<std::uint8_t>(byte);
}

void add_digits(unsigned byte, std::size_t at, std::size_t count, float size, float* sum) {
  for (std::size_t i = kDigits; i-- > 0; byte /= 3)
    if (at + i < count && byte % 3 != 1) sum[at + i] += byte % 3 == 2 ? size : -size;
}

std::size_t encode_three_levels(const float* values, std::size_t count, std::uint8_t* frame) {
  const float most = largest_loop(values, count);
  store_as(frame + kNumberBytes, most);
  std::uint8_t* bytes = frame + 2 * kNumberBytes;
  std::size_t written = 0;
  std::size_t zeros = 0;
  const auto end_run = [&] {
    if (zeros == 1) bytes[written++] = kZeros;
    if (zeros > 1) bytes[written++] = static_cast<std::uint8_t>(kRunBase + zeros - 2);
    zeros = 0;
  };
  for (std::size_t at = 0; at < count; at += kDigits) {
    const std::uint8_t byte = five_digits(values, count, at, most / 2);
    if (byte == kZeros) {
      if (++zeros == kLongestRun) end_run();
      continue;
    }
    end_run();
    bytes[written++] = byte;
  }
  end_run();
  store_as(frame, static_cast<std::uint32_t>(written));
  return 2 * kNumberBytes + written;
}

void add_three_levels(const std::uint8_t* frame, std::size_t count, float scale, float* sum) {
  const std::size_t written = load_as<std::uint32_t>(frame);
  const float size = scale * load_as<float>(frame + kNumberBytes);
  std::size_t at = 0;
  for (std::size_t i = 0; i < written; ++i) {
    const std::uint8_t byte = frame[2 * kNumberBytes + i];
    if (byte >= kRunBase) {
      at += kDigits * (byte - kRunBase + std::size_t{2});
      continue;
    }
    add_digits(byte, at, count, size, sum);
    at += kDigits;
  }
}

class ThreeLevels final : public PlainCodec<encode_three_levels, add_three_levels> {
 public:
  using PlainCodec::PlainCodec;
  /// Digits without a run.
  [[nodiscard]] std::size_t frame_room(const CodedPart& part,
                                       std::uint64_t /*step*/) const override {
    return 2 * kNumberBytes + (part.count + kDigits - 1) / kDigits;
  }
  [[nodiscard]] std::size_t frame_bytes(const CodedPart&, std::uint64_t /*step*/,
                                        const std::uint8_t* frame) const override {
    return 2 * kNumberBytes + load_as<std::uint32_t>(frame);
  }
};

}  // namespace

std::unique_ptr<GradientCodec> make_three_lc(const CodecSeat& seat) {
  return codec_at<ThreeLevels>(seat);
}

}  // namespace dynamiccl
