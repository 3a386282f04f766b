// CocktailSGD: of a random sample, the same on all workers, the largest values, with four bits
// each: the largest magnitude, a bit for each place of the sample, the levels.
#include "train/codecs/gradient_codec.hpp"
#include "train/codecs/loops/sparse_loops.hpp"

namespace dynamiccl {
namespace {

/// Places of the sample for each value that is kept, a bit each.
constexpr std::size_t kSampled = 10;
constexpr std::size_t kLevelBits = 4;
constexpr int kMostLevel = 7;  ///< levels are from -7 to 7, 7 added to them

unsigned bits_at(const std::uint8_t* bytes, std::size_t at, std::size_t bits) {
  unsigned value = 0;
  for (std::size_t i = 0; i < bits; ++i)
    value |= ((bytes[(at + i) / 8] >> ((at + i) % 8)) & 1U) << i;
  return value;
}

void set_bits(std::uint8_t* bytes, std::size_t at, unsigned value) {
  for (; value != 0; value >>= 1, ++at)
    if ((value & 1U) != 0)
      bytes[at / 8] = static_cast<std::uint8_t>(bytes[at / 8] | (1U << (at % 8)));
}

class Cocktail final : public GradientCodec {
 public:
  using GradientCodec::GradientCodec;
  void add(const CodedPart& part, std::uint64_t step, const std::uint8_t* frame, float scale,
           float* sum) const override {
    const std::size_t wanted = kept(part, step);
    const std::size_t sampled = std::min(kSampled * wanted, part.count);
    const std::uint32_t key = shared_key(part, step);
    const float unit = scale * load_as<float>(frame) / kMostLevel;
    const std::uint8_t* bits = frame + kNumberBytes;
    std::size_t found = 0;
    for (std::size_t i = 0; i < sampled && found < wanted; ++i) {
      if (bits_at(bits, i, 1) == 0) continue;
      const auto level =
          static_cast<int>(bits_at(bits, kSampled * wanted + kLevelBits * found++, kLevelBits));
      sum[drawn_place(i, sampled, part.count, key)] +=
          unit * static_cast<float>(level - kMostLevel);
    }
  }

 protected:
  std::size_t encode_values(const CodedPart& part, const float* values,
                            std::uint8_t* frame) override {
    const std::size_t wanted = kept(part, step());
    const std::size_t sampled = std::min(kSampled * wanted, part.count);
    const std::uint32_t key = shared_key(part, step());
    sample_.resize(sampled);
    for (std::size_t i = 0; i < sampled; ++i)
      sample_[i] = values[drawn_place(i, sampled, part.count, key)];
    const float most = largest_loop(sample_.data(), sampled);
    const std::size_t bytes = frame_room(part, step());
    std::fill_n(frame, bytes, std::uint8_t{0});
    store_as(frame, most);
    std::uint8_t* bits = frame + kNumberBytes;
    std::size_t found = 0;
    for (const std::uint32_t place : largest_places(sample_.data(), sampled, wanted)) {
      // What is no number, or is beyond all of them, has no level and stays here.
      const float level = most > 0 ? sample_[place] / most * kMostLevel : 0.0F;
      const auto whole = std::fabs(level) <= kMostLevel ? static_cast<int>(std::lround(level)) : 0;
      set_bits(bits, place, 1);
      set_bits(bits, kSampled * wanted + kLevelBits * found++,
               static_cast<unsigned>(whole + kMostLevel));
    }
    return bytes;
  }

 private:
  std::vector<float> sample_;
};

}  // namespace

std::unique_ptr<GradientCodec> make_cocktail(const CodecSeat& seat) {
  return codec_at<Cocktail>(seat);
}

}  // namespace dynamiccl
