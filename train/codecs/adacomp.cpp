// AdaComp: of each bin of values those that with one more gradient would reach the bin's largest,
// as their sign and the mean of the bins' largest: how many, the mean, places, signs.
#include "train/codecs/gradient_codec.hpp"
#include "train/codecs/loops/sparse_loops.hpp"

namespace dynamiccl {
namespace {

class AdaComp final : public GradientCodec {
 public:
  using GradientCodec::GradientCodec;
  /// All values may be kept.
  [[nodiscard]] std::size_t frame_room(const CodedPart& part,
                                       std::uint64_t /*step*/) const override {
    return kNumberBytes * (2 + part.count) + sign_bytes(part.count);
  }
  [[nodiscard]] std::size_t frame_bytes(const CodedPart&, std::uint64_t /*step*/,
                                        const std::uint8_t* frame) const override {
    const std::size_t found = load_as<std::uint32_t>(frame);
    return kNumberBytes * (2 + found) + sign_bytes(found);
  }
  void add(const CodedPart& part, std::uint64_t /*step*/, const std::uint8_t* frame, float scale,
           float* sum) const override {
    add_signed_places(frame + kNumberBytes, load_as<std::uint32_t>(frame), part.count, scale, sum);
  }

 protected:
  std::size_t encode_values(const CodedPart& part, const float* values,
                            std::uint8_t* frame) override {
    const float* kept_back = residual(part);
    std::vector<std::uint32_t> places;
    double sizes = 0;
    std::size_t bins = 0;
    for (std::size_t at = 0; at < part.count; at += kAdaBin, ++bins) {
      const std::size_t end = std::min(at + kAdaBin, part.count);
      const float most = largest_loop(values + at, end - at);
      sizes += most;
      if (most <= 0) continue;
      for (std::size_t i = at; i < end; ++i)
        if (std::fabs(2 * values[i] - kept_back[i]) >= most)
          places.push_back(static_cast<std::uint32_t>(i));
    }
    store_as(frame, static_cast<std::uint32_t>(places.size()));
    store_as(frame + kNumberBytes,
             static_cast<float>(sizes / static_cast<double>(std::max<std::size_t>(bins, 1))));
    return 2 * kNumberBytes +
           store_signed_places(values, places.data(), places.size(), frame + 2 * kNumberBytes);
  }
};

}  // namespace

std::unique_ptr<GradientCodec> make_adacomp(const CodecSeat& seat) {
  return codec_at<AdaComp>(seat);
}

}  // namespace dynamiccl
