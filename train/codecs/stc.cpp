// Sparse ternary compression: the largest as their sign and mean magnitude.
#include "train/codecs/gradient_codec.hpp"
#include "train/codecs/loops/sparse_loops.hpp"

namespace dynamiccl {
namespace {

class SparseTernary final : public GradientCodec {
 public:
  using GradientCodec::GradientCodec;
  void add(const CodedPart& part, std::uint64_t step, const std::uint8_t* frame, float scale,
           float* sum) const override {
    add_signed_places(frame, kept(part, step), part.count, scale, sum);
  }

 protected:
  std::size_t encode_values(const CodedPart& part, const float* values,
                            std::uint8_t* frame) override {
    const auto places = largest_places(values, part.count, kept(part, step()));
    double sum = 0;
    for (const std::uint32_t place : places) sum += std::fabs(values[place]);
    store_as(frame, static_cast<float>(sum / static_cast<double>(places.size())));
    return kNumberBytes +
           store_signed_places(values, places.data(), places.size(), frame + kNumberBytes);
  }
};

}  // namespace

std::unique_ptr<GradientCodec> make_stc(const CodecSeat& seat) {
  return codec_at<SparseTernary>(seat);
}

}  // namespace dynamiccl
