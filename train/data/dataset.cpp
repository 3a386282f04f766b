#include "train/data/dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <utility>

#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/file_text.hpp"
#include "core/vocabulary/text.hpp"
#include "workers/data/data_hash.hpp"

namespace dynamiccl {
namespace {

/// About normal, mean 0, deviation 1: four 16-bit words summed.
float normal(std::uint64_t bits) {
  const auto sum = static_cast<float>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) +
                                      (bits >> 32 & 0xFFFF) + (bits >> 48));
  return (sum - 131070.0F) / 37837.0F;
}

/// Images of ten kinds (or more): each kind has a coarse pattern of its own, far below the noise in
/// one pixel, so that it must be learnt from many. A sample is a pure function of its number.
class GeneratedImages final : public Dataset {
 public:
  GeneratedImages(int side, int classes, std::size_t samples, bool hard)
      : side_(static_cast<std::size_t>(side)),
        classes_(static_cast<std::uint64_t>(classes)),
        samples_(samples),
        hard_(hard) {
    if (side > 32) return;
    // Small ones are made once: a step of a small model is shorter than the making of its batch.
    stored_.resize((samples_ + held_out_size()) * pixels());
    for (std::size_t i = 0; i < samples_ + held_out_size(); ++i) make(i, &stored_[i * pixels()]);
  }
  [[nodiscard]] std::size_t training_size() const override { return samples_; }
  [[nodiscard]] std::size_t held_out_size() const override {
    return std::min(samples_, std::max(kHeldOut, samples_ / 8));
  }
  [[nodiscard]] std::string description() const override {
    return fmt::format("generated images, {} kinds, 3 x {} x {}{}", classes_, side_, side_,
                       hard_ ? ", faint, a quarter of the labels drawn at random" : "");
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
    batch.labels.push_back(static_cast<std::int64_t>(told(index)));
    ++batch.count;
  }

 private:
  static constexpr std::size_t kHeldOut = 512;  ///< at least, where there are so many
  static constexpr std::size_t kCoarse = 8;
  static constexpr float kSignal = 0.12F;
  static constexpr float kFaintSignal = 0.06F;
  static constexpr std::uint64_t kOneWrongOf = 4;
  [[nodiscard]] std::size_t pixels() const { return 3 * side_ * side_; }
  [[nodiscard]] std::uint64_t label(std::size_t index) const {
    return splitmix64_of(index) % classes_;
  }
  /// The label that goes with it: hard data is right about three of four, and by chance.
  [[nodiscard]] std::uint64_t told(std::size_t index) const {
    const std::uint64_t dice = splitmix64_of(index ^ 0x5DEECE66D1234567ULL);
    return hard_ && dice % kOneWrongOf == 0 ? dice / kOneWrongOf % classes_ : label(index);
  }
  void make(std::size_t index, float* out) const {
    const float signal = hard_ ? kFaintSignal : kSignal;
    const std::uint64_t kind = label(index);
    const std::size_t block = side_ / kCoarse;
    std::uint64_t noise = splitmix64_of(index ^ 0xABCDEF0123456789ULL);
    for (std::size_t c = 0; c < 3; ++c) {
      for (std::size_t y = 0; y < side_; ++y) {
        for (std::size_t x = 0; x < side_; ++x) {
          const std::size_t cell = (c * kCoarse + y / block) * kCoarse + x / block;
          noise = splitmix64_of(noise);
          *out++ = signal * normal(splitmix64_of(kind * 1000003 + cell)) + normal(noise);
        }
      }
    }
  }

  std::size_t side_;
  std::uint64_t classes_;
  std::size_t samples_;
  bool hard_;
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
    std::uint64_t token = splitmix64_of(index) % vocabulary_;
    for (int i = 0; i < sequence_; ++i) {
      batch.tokens.push_back(static_cast<std::int64_t>(token));
      const std::uint64_t dice = splitmix64_of(index * 8191 + static_cast<std::uint64_t>(i));
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
  if (is_generated(spec.data)) {
    const bool hard = spec.data == kGeneratedHardData;
    if (facts.tokens && hard)
      throw Error(ErrorKind::input, fmt::format("data = \"{}\": images only; {} takes "
                                                "data = \"generated\"",
                                                spec.data, name_of(spec.model)));
    if (facts.tokens)
      return std::make_unique<GeneratedTokens>(spec.sequence, facts.classes, samples);
    return std::make_unique<GeneratedImages>(spec.model == TrainingModel::resnet50 ? 224 : 32,
                                             facts.classes, samples, hard);
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

namespace {

/// 0 to count - 1 in an order of that number.
std::vector<std::uint32_t> shuffled(std::size_t count, std::uint64_t number) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  std::uint64_t state = number;
  for (std::size_t i = count; i > 1; --i) {
    state = splitmix64_of(state);
    std::swap(order[i - 1], order[state % i]);
  }
  return order;
}

}  // namespace

Sharding::Sharding(std::size_t samples, int workers, const TrainingSpec& spec, std::uint64_t seed)
    : Sharding(samples, workers, spec.batch, seed) {
  if (spec.shares == DataShares::equal) return;
  dealt_ = shuffled(samples, splitmix64_of(seed));
  double end = 0;
  for (int worker = 0; worker < workers; ++worker) {
    Part part;
    part.first = static_cast<std::size_t>(end * static_cast<double>(samples));
    end += share_of(spec, workers, worker);
    const auto last = worker + 1 == workers
                          ? samples
                          : static_cast<std::size_t>(end * static_cast<double>(samples));
    part.count = std::max<std::size_t>(1, last - part.first);
    part.first = std::min(part.first, samples - part.count);
    parts_.push_back(std::move(part));
  }
}

void Sharding::shuffle(std::uint64_t epoch) {
  order_ = shuffled(samples_, splitmix64_of(seed_ ^ splitmix64_of(epoch)));
  epoch_ = epoch;
}

std::size_t Sharding::of_part(std::uint64_t step, int worker, int position) {
  Part& part = parts_[static_cast<std::size_t>(worker)];
  const std::uint64_t taken = step * batch_ + static_cast<std::uint64_t>(position);
  const std::uint64_t pass = taken / part.count;
  if (pass != part.pass) {
    part.order = shuffled(
        part.count,
        splitmix64_of(seed_ ^ splitmix64_of(pass * workers_ + static_cast<std::size_t>(worker))));
    part.pass = pass;
  }
  return dealt_[part.first + part.order[taken % part.count]];
}

std::size_t Sharding::sample(std::uint64_t step, int worker, int position) {
  if (!parts_.empty()) return of_part(step, worker, position);
  const std::uint64_t epoch = step / steps_per_epoch_;
  if (epoch != epoch_) shuffle(epoch);
  const std::size_t in_epoch = static_cast<std::size_t>(step % steps_per_epoch_);
  const std::size_t place = (in_epoch * workers_ + static_cast<std::size_t>(worker)) * batch_ +
                            static_cast<std::size_t>(position);
  return order_[place % samples_];
}

namespace {

constexpr std::size_t kSide = 32;
constexpr std::size_t kPlane = kSide * kSide;

std::string read_whole(const std::string& path) {
  auto content = read_file(path);
  if (!content) throw Error(ErrorKind::input, fmt::format("{}: cannot be read", path));
  return *std::move(content);
}

/// Images of bytes, 3 x 32 x 32, brought to mean 0 and deviation 1 with the data set's own figures.
class StoredImages final : public Dataset {
 public:
  [[nodiscard]] std::size_t training_size() const override { return training_; }
  [[nodiscard]] std::size_t held_out_size() const override { return labels_.size() - training_; }
  [[nodiscard]] std::string description() const override {
    std::string text =
        fmt::format("{}, {} images and {} held out", format_, training_size(), held_out_size());
    for (const auto& [name, digest] : files_) text += fmt::format(", {} {}", name, digest);
    if (!deviations_.empty()) text += "; not the published set: " + join(deviations_, ", ");
    return text;
  }
  [[nodiscard]] std::string digest() const override {
    std::string lines;
    for (const auto& [name, digest] : files_) lines += fmt::format("{}  {}\n", digest, name);
    return sha256_hex(lines);
  }
  void add_to(Batch& batch, std::size_t index) const override {
    static constexpr float mean[] = {0.4914F, 0.4822F, 0.4465F};
    static constexpr float deviation[] = {0.2470F, 0.2435F, 0.2616F};
    batch.side = kSide;
    const auto* image = reinterpret_cast<const unsigned char*>(&pixels_[index * 3 * kPlane]);
    const std::size_t at = batch.pixels.size();
    batch.pixels.resize(at + 3 * kPlane);
    for (std::size_t i = 0; i < 3 * kPlane; ++i) {
      const std::size_t c = i / kPlane;
      batch.pixels[at + i] = (static_cast<float>(image[i]) / 255 - mean[c]) / deviation[c];
    }
    batch.labels.push_back(labels_[index]);
    ++batch.count;
  }

  /// A file's bytes, which count in the digest from then on.
  std::string take(const std::filesystem::path& path) {
    std::string bytes = read_whole(path.string());
    files_.emplace_back(path.filename().string(), sha256_hex(bytes));
    return bytes;
  }
  void expect(const std::string& name, std::size_t count, std::size_t published) {
    if (count != published)
      deviations_.push_back(fmt::format("{} holds {} instead of {}", name, count, published));
  }
  void note_missing(const std::string& name) { deviations_.push_back("no " + name); }

  std::string format_;
  std::string pixels_;  ///< one byte per value
  std::vector<std::int64_t> labels_;
  std::size_t training_ = 0;

 private:
  std::vector<std::pair<std::string, std::string>> files_;  ///< name and SHA-256
  std::vector<std::string> deviations_;
};

void add_cifar_file(StoredImages& images, const std::string& folder, const std::string& name) {
  constexpr std::size_t kRecord = 1 + 3 * kPlane;
  constexpr std::size_t kPublished = 10'000;
  const std::string path = fmt::format("{}/{}", folder, name);
  if (!std::filesystem::exists(path)) return images.note_missing(name);
  const std::string bytes = images.take(path);
  if (bytes.empty() || bytes.size() % kRecord != 0)
    throw Error(ErrorKind::input,
                fmt::format("{}: {} bytes are no whole number of CIFAR-10 records of {} bytes; "
                            "fetch it again, the binary version",
                            path, bytes.size(), kRecord));
  for (std::size_t at = 0; at < bytes.size(); at += kRecord) {
    const auto label = static_cast<unsigned char>(bytes[at]);
    if (label > 9)
      throw Error(ErrorKind::input, fmt::format("{}: record {} has label {}, CIFAR-10 knows 0 to 9",
                                                path, at / kRecord, label));
    images.labels_.push_back(label);
    images.pixels_.append(bytes, at + 1, kRecord - 1);
  }
  images.expect(name, bytes.size() / kRecord, kPublished);
}

std::uint32_t big_endian(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i)
    value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

[[noreturn]] void refuse_idx(const std::string& path, const std::string& why) {
  throw Error(ErrorKind::input, fmt::format("{}: no IDX file as expected: {}", path, why));
}

/// @param part "train" or "t10k"
void add_idx_pair(StoredImages& images, const std::string& folder, const std::string& part,
                  std::size_t published) {
  const std::string name = part + "-images-idx3-ubyte";
  const std::string image_path = fmt::format("{}/{}", folder, name);
  const std::string label_path = fmt::format("{}/{}-labels-idx1-ubyte", folder, part);
  if (!std::filesystem::exists(image_path)) return images.note_missing(name);
  const std::string pixels = images.take(image_path);
  const std::string labels = images.take(label_path);
  if (pixels.size() < 16 || big_endian(pixels, 0) != 2051)
    refuse_idx(image_path, "the magic number is not 2051");
  if (labels.size() < 8 || big_endian(labels, 0) != 2049)
    refuse_idx(label_path, "the magic number is not 2049");
  const std::size_t count = big_endian(pixels, 4);
  const std::size_t rows = big_endian(pixels, 8);
  const std::size_t columns = big_endian(pixels, 12);
  if (rows > kSide || columns > kSide) refuse_idx(image_path, "images are larger than 32 x 32");
  if (pixels.size() != 16 + count * rows * columns)
    refuse_idx(image_path, fmt::format("{} images of {} x {} need {} bytes, it has {}", count, rows,
                                       columns, 16 + count * rows * columns, pixels.size()));
  if (big_endian(labels, 4) != count || labels.size() != 8 + count)
    refuse_idx(label_path, fmt::format("{} labels for {} images", labels.size() - 8, count));
  const std::size_t top = (kSide - rows) / 2;
  const std::size_t left = (kSide - columns) / 2;
  for (std::size_t i = 0; i < count; ++i) {
    std::string plane(kPlane, '\0');
    for (std::size_t y = 0; y < rows; ++y)
      std::copy_n(&pixels[16 + (i * rows + y) * columns], columns,
                  &plane[(top + y) * kSide + left]);
    for (int c = 0; c < 3; ++c) images.pixels_ += plane;
    const auto label = static_cast<unsigned char>(labels[8 + i]);
    if (label > 9) refuse_idx(label_path, fmt::format("label {} is above 9", label));
    images.labels_.push_back(label);
  }
  images.expect(name, count, published);
}

}  // namespace

std::unique_ptr<Dataset> open_cifar10(const std::string& folder) {
  auto images = std::make_unique<StoredImages>();
  images->format_ = "CIFAR-10";
  for (int i = 1; i <= 5; ++i) add_cifar_file(*images, folder, fmt::format("data_batch_{}.bin", i));
  images->training_ = images->labels_.size();
  add_cifar_file(*images, folder, "test_batch.bin");
  return images;
}

std::unique_ptr<Dataset> open_idx(const std::string& folder) {
  auto images = std::make_unique<StoredImages>();
  images->format_ = "IDX";
  // Counts of MNIST and of those made in its likeness.
  add_idx_pair(*images, folder, "train", 60'000);
  images->training_ = images->labels_.size();
  add_idx_pair(*images, folder, "t10k", 10'000);
  return images;
}

}  // namespace dynamiccl
