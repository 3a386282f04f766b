// A bit for each value: 1 where it is negative. Their sum becomes what most workers say.
#include "train/codecs/gradient_codec.hpp"
#include "train/codecs/loops/sign_loops.hpp"

namespace dynamiccl {
namespace {

DYN_LOOP void vote_loop(float* sum, std::size_t count, float workers) {
  for (std::size_t i = 0; i < count; ++i)
    sum[i] = sum[i] > 0 ? workers : sum[i] < 0 ? -workers : 0.0F;
}

std::size_t encode_signs(const float* values, std::size_t count, std::uint8_t* frame) {
  run_loop<signs_loop>(values, count, frame);
  return (count + 7) / 8;
}
void add_signs(const std::uint8_t* frame, std::size_t count, float scale, float* sum) {
  run_loop<add_bits_loop>(frame, count, scale, -scale, sum);
}

class SignSgd final : public PlainCodec<encode_signs, add_signs> {
 public:
  using PlainCodec::PlainCodec;
  /// As many times as there are workers; 0 where as many say one as the other.
  void take_vote(float* sum, std::size_t count, int workers) const override {
    run_loop<vote_loop>(sum, count, static_cast<float>(workers));
  }
};

}  // namespace

std::unique_ptr<GradientCodec> make_signsgd(const CodecSeat& seat) {
  return codec_at<SignSgd>(seat);
}

}  // namespace dynamiccl
