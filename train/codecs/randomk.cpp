// One value of each of so many strata, which all workers draw alike, so that the library adds them.
#include "train/codecs/gradient_codec.hpp"

namespace dynamiccl {
namespace {

class RandomK final : public GradientCodec {
 public:
  using GradientCodec::GradientCodec;
  void add(const CodedPart& part, std::uint64_t step, const std::uint8_t* frame, float scale,
           float* sum) const override {
    for_drawn(part, step, [&](std::size_t i, std::size_t place) {
      sum[place] += scale * load_as<float>(frame + kNumberBytes * i);
    });
  }
  void decode(const CodedPart& part, std::uint64_t step, const std::uint8_t* frame,
              float* values) const override {
    std::fill_n(values, part.count, 0.0F);
    for_drawn(part, step, [&](std::size_t i, std::size_t place) {
      values[place] = load_as<float>(frame + kNumberBytes * i);
    });
  }

 protected:
  std::size_t encode_values(const CodedPart& part, const float* values,
                            std::uint8_t* frame) override {
    const std::size_t drawn = kept(part, step());
    for_drawn(part, step(), [&](std::size_t i, std::size_t place) {
      // Without a residual the expected value is the gradient.
      const auto size = static_cast<float>(stratum_size(i, drawn, part.count));
      store_as(frame + kNumberBytes * i, values[place] * (settings().feedback ? 1.0F : size));
    });
    return kNumberBytes * drawn;
  }
  void keep(const CodedPart& part, const float* values, const std::uint8_t* /*frame*/) override {
    float* kept_back = residual(part);
    if (kept_back == nullptr) return;
    std::copy_n(values, part.count, kept_back);
    for_drawn(part, step(), [&](std::size_t, std::size_t place) { kept_back[place] = 0; });
  }

 private:
  template <class F>
  void for_drawn(const CodedPart& part, std::uint64_t step, F&& take) const {
    const std::size_t drawn = kept(part, step);
    const std::uint32_t key = shared_key(part, step);
    for (std::size_t i = 0; i < drawn; ++i) take(i, drawn_place(i, drawn, part.count, key));
  }
};

}  // namespace

std::unique_ptr<GradientCodec> make_randomk(const CodecSeat& seat) {
  return codec_at<RandomK>(seat);
}

}  // namespace dynamiccl
