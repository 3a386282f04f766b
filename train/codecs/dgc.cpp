// Deep gradient compression: the largest values of what momentum has gathered.
#include "train/codecs/largest_codec.hpp"

namespace dynamiccl {
namespace {

class Dgc final : public LargestCodec {
 public:
  explicit Dgc(const CodecSeat& seat) : LargestCodec(seat) { remember(velocity_); }

 protected:
  /// Momentum correction: what is accumulated is the velocity, not the gradient.
  void compensate(const CodedPart& part, float* values) override {
    float factor = 1;
    if (settings().clip > 0) {
      const double most = settings().clip / std::sqrt(static_cast<double>(workers()));
      const double length = norm(values, part.count);
      if (length > most) factor = static_cast<float>(most / length);
    }
    const auto momentum = static_cast<float>(settings().momentum);
    float* velocity = &velocity_[part.offset];
    float* waiting = residual(part);
    for (std::size_t i = 0; i < part.count; ++i) {
      velocity[i] = momentum * velocity[i] + factor * values[i];
      waiting[i] += velocity[i];
      values[i] = waiting[i];
    }
  }
  /// What was sent is forgotten in both.
  void keep(const CodedPart& part, const float* /*values*/, const std::uint8_t* frame) override {
    for (std::size_t i = 0; i < kept(part, step()); ++i) {
      const auto place = load_as<std::uint32_t>(frame + kNumberBytes * i);
      residual(part)[place] = 0;
      velocity_[part.offset + place] = 0;
    }
  }

 private:
  std::vector<float> velocity_;
};

}  // namespace

std::unique_ptr<GradientCodec> make_dgc(const CodecSeat& seat) { return codec_at<Dgc>(seat); }

}  // namespace dynamiccl
