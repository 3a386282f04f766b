// Sparse binary compression: of the largest that are positive and the largest that are negative
// those with the larger mean: the mean, with its sign, and the places.
#include "train/codecs/gradient_codec.hpp"
#include "train/codecs/loops/sparse_loops.hpp"

namespace dynamiccl {
namespace {

class SparseBinary final : public GradientCodec {
 public:
  using GradientCodec::GradientCodec;
  void add(const CodedPart& part, std::uint64_t step, const std::uint8_t* frame, float scale,
           float* sum) const override {
    const float size = scale * load_as<float>(frame);
    for (std::size_t i = 0; i < kept(part, step); ++i)
      sum[checked_place(frame + kNumberBytes, i, part.count)] += size;
  }

 protected:
  std::size_t encode_values(const CodedPart& part, const float* values,
                            std::uint8_t* frame) override {
    const std::size_t wanted = kept(part, step());
    static thread_local std::vector<float> side;
    side.resize(part.count);
    std::vector<std::uint32_t> best;
    double best_mean = 0;
    for (const float sign : {1.0F, -1.0F}) {
      for (std::size_t i = 0; i < part.count; ++i) side[i] = std::max(sign * values[i], 0.0F);
      auto places = largest_places(side.data(), part.count, wanted);
      double sum = 0;
      for (const std::uint32_t place : places) sum += side[place];
      const double mean = sum / static_cast<double>(wanted);
      if (!best.empty() && mean <= std::fabs(best_mean)) continue;
      best = std::move(places);
      best_mean = sign * mean;
    }
    store_as(frame, static_cast<float>(best_mean));
    std::memcpy(frame + kNumberBytes, best.data(), wanted * kNumberBytes);
    return kNumberBytes * (1 + wanted);
  }
};

}  // namespace

std::unique_ptr<GradientCodec> make_sbc(const CodecSeat& seat) {
  return codec_at<SparseBinary>(seat);
}

}  // namespace dynamiccl
