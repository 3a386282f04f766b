// The values of the largest magnitude, and their places.
#include "train/codecs/largest_codec.hpp"

namespace dynamiccl {

std::unique_ptr<GradientCodec> make_topk(const CodecSeat& seat) {
  return codec_at<LargestCodec>(seat);
}

}  // namespace dynamiccl
