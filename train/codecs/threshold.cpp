// Values of at least some magnitude: how many, their places in order, the values.
#include "train/codecs/gradient_codec.hpp"
#include "train/codecs/loops/sparse_loops.hpp"

namespace dynamiccl {
namespace {

class Threshold final : public GradientCodec {
 public:
  using GradientCodec::GradientCodec;
  /// All values may be kept.
  [[nodiscard]] std::size_t frame_room(const CodedPart& part,
                                       std::uint64_t /*step*/) const override {
    return kNumberBytes * (1 + 2 * part.count);
  }
  [[nodiscard]] std::size_t frame_bytes(const CodedPart&, std::uint64_t /*step*/,
                                        const std::uint8_t* frame) const override {
    return kNumberBytes * (1 + std::size_t{2} * load_as<std::uint32_t>(frame));
  }
  void add(const CodedPart& part, std::uint64_t /*step*/, const std::uint8_t* frame, float scale,
           float* sum) const override {
    add_sparse(frame + kNumberBytes, load_as<std::uint32_t>(frame), part.count, scale, sum);
  }

 protected:
  std::size_t encode_values(const CodedPart& part, const float* values,
                            std::uint8_t* frame) override {
    const auto least = static_cast<float>(settings().threshold);
    const std::size_t found = find_places(values, part.count, least, places_);
    store_as(frame, static_cast<std::uint32_t>(found));
    return kNumberBytes + store_sparse(values, places_, found, frame + kNumberBytes);
  }

 private:
  std::vector<std::uint32_t> places_;
};

}  // namespace

std::unique_ptr<GradientCodec> make_threshold(const CodecSeat& seat) {
  return codec_at<Threshold>(seat);
}

}  // namespace dynamiccl
