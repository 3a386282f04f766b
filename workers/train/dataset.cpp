#include "workers/train/dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "core/vocabulary/digest.hpp"

namespace dynamiccl {
namespace {

/// splitmix64's finaliser: a sample is a pure function of its number.
std::uint64_t stirred(std::uint64_t z) {
  z += 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

/// About normal, mean 0, deviation 1: four 16-bit words summed.
float normal(std::uint64_t bits) {
  const auto sum = static_cast<float>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) +
                                      (bits >> 32 & 0xFFFF) + (bits >> 48));
  return (sum - 131070.0F) / 37837.0F;
}

/// Images of ten kinds (or more): each kind has a coarse pattern of its own, far below the noise in
/// one pixel, so that it must be learnt from many.
class GeneratedImages final : public Dataset {
 public:
  GeneratedImages(int side, int classes, std::size_t samples)
      : side_(static_cast<std::size_t>(side)),
        classes_(static_cast<std::uint64_t>(classes)),
        samples_(samples) {
    if (side > 32) return;
    // Small ones are made once: a step of a small model is shorter than the making of its batch.
    stored_.resize((samples_ + held_out_size()) * pixels());
    for (std::size_t i = 0; i < samples_ + held_out_size(); ++i) make(i, &stored_[i * pixels()]);
  }
  [[nodiscard]] std::size_t training_size() const override { return samples_; }
  [[nodiscard]] std::size_t held_out_size() const override { return std::min(samples_, kHeldOut); }
  [[nodiscard]] std::string description() const override {
    return fmt::format("generated images, {} kinds, 3 x {} x {}", classes_, side_, side_);
  }
  [[nodiscard]] std::string digest() const override { return sha256_hex(description()); }
  void add_to(Batch& batch, std::size_t index) const override {
    batch.side = static_cast<int>(side_);
    const std::size_t at = batch.pixels.size();
    batch.pixels.resize(at + pixels());
    if (stored_.empty()) {
      make(index, &batch.pixels[at]);
    } else {
      std::copy_n(&stored_[index * pixels()], pixels(), &batch.pixels[at]);
    }
    batch.labels.push_back(static_cast<std::int64_t>(label(index)));
    ++batch.count;
  }

 private:
  static constexpr std::size_t kHeldOut = 512;
  static constexpr std::size_t kCoarse = 8;
  static constexpr float kSignal = 0.12F;
  [[nodiscard]] std::size_t pixels() const { return 3 * side_ * side_; }
  [[nodiscard]] std::uint64_t label(std::size_t index) const { return stirred(index) % classes_; }
  void make(std::size_t index, float* out) const {
    const std::uint64_t kind = label(index);
    const std::size_t block = side_ / kCoarse;
    std::uint64_t noise = stirred(index ^ 0xABCDEF0123456789ULL);
    for (std::size_t c = 0; c < 3; ++c) {
      for (std::size_t y = 0; y < side_; ++y) {
        for (std::size_t x = 0; x < side_; ++x) {
          const std::size_t cell = (c * kCoarse + y / block) * kCoarse + x / block;
          noise = stirred(noise);
          *out++ = kSignal * normal(stirred(kind * 1000003 + cell)) + normal(noise);
        }
      }
    }
  }

  std::size_t side_;
  std::uint64_t classes_;
  std::size_t samples_;
  std::vector<float> stored_;
};

/// Sentences in which a token mostly follows from the one before; each is its neighbour's label.
class GeneratedTokens final : public Dataset {
 public:
  GeneratedTokens(int sequence, int vocabulary, std::size_t samples)
      : sequence_(sequence),
        vocabulary_(static_cast<std::uint64_t>(vocabulary)),
        samples_(samples) {}
  [[nodiscard]] std::size_t training_size() const override { return samples_; }
  [[nodiscard]] std::size_t held_out_size() const override { return 64; }
  [[nodiscard]] std::string description() const override {
    return fmt::format("generated sentences of {} tokens", sequence_);
  }
  [[nodiscard]] std::string digest() const override { return sha256_hex(description()); }
  void add_to(Batch& batch, std::size_t index) const override {
    batch.sequence = sequence_;
    std::uint64_t token = stirred(index) % vocabulary_;
    for (int i = 0; i < sequence_; ++i) {
      batch.tokens.push_back(static_cast<std::int64_t>(token));
      const std::uint64_t dice = stirred(index * 8191 + static_cast<std::uint64_t>(i));
      token = dice % 10 < 8 ? (token * 31 + 7) % vocabulary_ : dice / 10 % vocabulary_;
      batch.labels.push_back(static_cast<std::int64_t>(token));
    }
    ++batch.count;
  }

 private:
  int sequence_;
  std::uint64_t vocabulary_;
  std::size_t samples_;
};

}  // namespace

std::unique_ptr<Dataset> open_dataset(const TrainingSpec& spec) {
  const ModelFacts facts = facts_of(spec.model, spec.sequence);
  const auto samples = static_cast<std::size_t>(spec.samples);
  if (spec.data == "generated") {
    if (facts.tokens)
      return std::make_unique<GeneratedTokens>(spec.sequence, facts.classes, samples);
    return std::make_unique<GeneratedImages>(spec.model == TrainingModel::resnet50 ? 224 : 32,
                                             facts.classes, samples);
  }
  if (facts.tokens || spec.model == TrainingModel::resnet50)
    throw Error(ErrorKind::input,
                fmt::format("data = \"{}\": {} takes no 32 x 32 images with ten labels; use "
                            "data = \"generated\"",
                            spec.data, name_of(spec.model)));
  if (std::filesystem::exists(spec.data + "/data_batch_1.bin")) return open_cifar10(spec.data);
  if (std::filesystem::exists(spec.data + "/train-images-idx3-ubyte")) return open_idx(spec.data);
  throw Error(ErrorKind::input,
              fmt::format("data = \"{}\": neither data_batch_1.bin (CIFAR-10, binary version) nor "
                          "train-images-idx3-ubyte (IDX) is in this folder; give the folder that "
                          "holds them, or \"generated\"",
                          spec.data));
}

Sharding::Sharding(std::size_t samples, int workers, int batch, std::uint64_t seed)
    : samples_(samples),
      workers_(static_cast<std::size_t>(workers)),
      batch_(static_cast<std::size_t>(batch)),
      // What does not fill a step of all workers is left out of this epoch.
      steps_per_epoch_(std::max<std::uint64_t>(1, samples / (workers_ * batch_))),
      seed_(seed) {}

void Sharding::shuffle(std::uint64_t epoch) {
  order_.resize(samples_);
  std::iota(order_.begin(), order_.end(), 0U);
  std::uint64_t state = stirred(seed_ ^ stirred(epoch));
  for (std::size_t i = samples_; i > 1; --i) {
    state = stirred(state);
    std::swap(order_[i - 1], order_[state % i]);
  }
  epoch_ = epoch;
}

std::size_t Sharding::sample(std::uint64_t step, int worker, int position) {
  const std::uint64_t epoch = step / steps_per_epoch_;
  if (epoch != epoch_) shuffle(epoch);
  const std::size_t in_epoch = static_cast<std::size_t>(step % steps_per_epoch_);
  const std::size_t place = (in_epoch * workers_ + static_cast<std::size_t>(worker)) * batch_ +
                            static_cast<std::size_t>(position);
  return order_[place % samples_];
}

}  // namespace dynamiccl
