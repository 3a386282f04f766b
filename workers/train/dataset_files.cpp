#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/text.hpp"
#include "workers/train/dataset.hpp"

namespace dynamiccl {
namespace {

constexpr std::size_t kSide = 32;
constexpr std::size_t kPlane = kSide * kSide;

std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorKind::input, fmt::format("{}: cannot be read", path));
  return {std::istreambuf_iterator<char>(file), {}};
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
