#include "train/data/dataset.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "core/vocabulary/digest.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;

namespace {

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("data-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::string big_endian(unsigned value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xFF);
  return bytes;
}

TrainingSpec from(const Folder& folder) {
  TrainingSpec spec;
  spec.data = folder.path();
  return spec;
}

}  // namespace

TEST_CASE("CIFAR-10's binary files are read by record, and damaged ones refused") {
  const Folder folder;
  std::string record(3073, '\0');
  record[0] = 7;
  record[1] = '\xff';
  folder.write("data_batch_1.bin", record + record);
  folder.write("test_batch.bin", record);
  const auto data = open_dataset(from(folder));
  CHECK(data->training_size() == 2);
  CHECK(data->held_out_size() == 1);
  CHECK(data->description() ==
        "CIFAR-10, 2 images and 1 held out, data_batch_1.bin " + sha256_hex(record + record) +
            ", test_batch.bin " + sha256_hex(record) +
            "; not the published set: data_batch_1.bin holds 2 instead of 10000, no "
            "data_batch_2.bin, no data_batch_3.bin, no data_batch_4.bin, no data_batch_5.bin, "
            "test_batch.bin holds 1 instead of 10000");
  Batch batch;
  data->add_to(batch, 1);
  CHECK(batch.labels == std::vector<std::int64_t>{7});
  REQUIRE(batch.pixels.size() == 3072);
  CHECK(batch.pixels[0] > 2);
  CHECK(batch.pixels[1] < 0);
  folder.write("data_batch_1.bin", record + "x");
  CHECK_THROWS_WITH(open_dataset(from(folder)),
                    ContainsSubstring("3074 bytes are no whole number"));
  record[0] = 10;
  folder.write("data_batch_1.bin", record);
  CHECK_THROWS_WITH(open_dataset(from(folder)), ContainsSubstring("has label 10"));
}

TEST_CASE("CIFAR-10 as published is said to be nothing else") {
  const Folder folder;
  std::string records;
  for (int i = 0; i < 10'000; ++i) records += static_cast<char>(i % 10) + std::string(3072, '\0');
  for (int i = 1; i <= 5; ++i) folder.write("data_batch_" + std::to_string(i) + ".bin", records);
  folder.write("test_batch.bin", records);
  const auto data = open_dataset(from(folder));
  CHECK_THAT(data->description(), ContainsSubstring("50000 images and 10000 held out"));
  CHECK_THAT(data->description(), !ContainsSubstring("published"));
}

TEST_CASE("a data set's digest is that of every file, labels too, and what sha256sum gives") {
  const Folder folder;
  const std::string images = big_endian(2051) + big_endian(2) + big_endian(1) + big_endian(1);
  folder.write("train-images-idx3-ubyte", images + "ab");
  const auto digest_with = [&](const std::string& labels) {
    folder.write("train-labels-idx1-ubyte", big_endian(2049) + big_endian(2) + labels);
    return open_dataset(from(folder))->digest();
  };
  const std::string one = digest_with("\x03\x04");
  CHECK(one == sha256_hex(sha256_hex(images + "ab") + "  train-images-idx3-ubyte\n" +
                          sha256_hex(big_endian(2049) + big_endian(2) + "\x03\x04") +
                          "  train-labels-idx1-ubyte\n"));
  CHECK(digest_with("\x03\x05") != one);
  CHECK(digest_with("\x03\x04") == one);
  TrainingSpec spec;
  spec.model = TrainingModel::cnn;
  CHECK(open_dataset(spec)->digest() == open_dataset(spec)->digest());
}

TEST_CASE("IDX files of any count are read, and wrong headers refused") {
  const Folder folder;
  const std::string images = big_endian(2051) + big_endian(2) + big_endian(28) + big_endian(28);
  folder.write("train-images-idx3-ubyte", images + std::string(2 * 784, '\x80'));
  folder.write("train-labels-idx1-ubyte", big_endian(2049) + big_endian(2) + "\x03\x04");
  const auto data = open_dataset(from(folder));
  CHECK(data->training_size() == 2);
  CHECK_THAT(data->description(),
             ContainsSubstring("train-images-idx3-ubyte holds 2 instead of 60000, no t10k-images"));
  Batch batch;
  data->add_to(batch, 1);
  CHECK(batch.labels == std::vector<std::int64_t>{4});
  CHECK(batch.pixels[0] < 0);
  CHECK(batch.pixels[16 * 32 + 16] > 0);
  folder.write("train-images-idx3-ubyte", images + std::string(784, '\x80'));
  CHECK_THROWS_WITH(open_dataset(from(folder)), ContainsSubstring("need 1584 bytes"));
  folder.write("train-images-idx3-ubyte", big_endian(2049) + std::string(20, 'x'));
  CHECK_THROWS_WITH(open_dataset(from(folder)), ContainsSubstring("magic number"));
}

TEST_CASE("a folder without data says what it looked for") {
  TrainingSpec spec;
  spec.data = "/nowhere";
  CHECK_THROWS_WITH(open_dataset(spec), ContainsSubstring("data_batch_1.bin"));
  spec.model = TrainingModel::bert_base;
  CHECK_THROWS_WITH(open_dataset(spec), ContainsSubstring("bert-base takes no"));
}

TEST_CASE("generated samples depend on their number alone and show every label") {
  TrainingSpec spec;
  spec.model = TrainingModel::cnn;
  spec.samples = 64;
  const auto one = open_dataset(spec);
  const auto other = open_dataset(spec);
  Batch a;
  Batch b;
  std::set<std::int64_t> labels;
  for (std::size_t i = 0; i < 64; ++i) {
    one->add_to(a, i);
    labels.insert(a.labels.back());
  }
  for (std::size_t i = 0; i < 64; ++i) other->add_to(b, i);
  CHECK(a.pixels == b.pixels);
  CHECK(labels.size() == 10);
}

TEST_CASE("an epoch has the steps that all workers fill", "[a-32]") {
  const auto steps = [](int workers) { return Sharding(50'000, workers, 32, 1).steps_per_epoch(); };
  // The study rounds up: 391, 521 and 782.
  CHECK(steps(4) == 390);
  CHECK(steps(3) == 520);
  CHECK(steps(2) == 781);
}

TEST_CASE("workers take different samples, all of them once per epoch, in a new order each time") {
  Sharding sharding(64, 4, 8, 1);
  std::vector<std::vector<std::size_t>> epochs(2);
  for (std::uint64_t step = 0; step < 4; ++step) {
    for (int worker = 0; worker < 4; ++worker) {
      for (int i = 0; i < 8; ++i) epochs[step / 2].push_back(sharding.sample(step, worker, i));
    }
  }
  for (const auto& epoch : epochs)
    CHECK(std::set<std::size_t>(epoch.begin(), epoch.end()).size() == 64);
  CHECK(epochs[0] != epochs[1]);
  // One process that replays worker 2 sees what worker 2 saw.
  Sharding replay(64, 4, 8, 1);
  CHECK(replay.sample(3, 2, 5) == epochs[1][32 + 2 * 8 + 5]);
  CHECK(Sharding(4, 4, 8, 1).sample(0, 3, 7) < 4);
}

TEST_CASE("unequal parts of the data stay each worker's own and are gone through whole", "[d-16]") {
  TrainingSpec spec;
  spec.batch = 8;
  spec.synchronisation = Synchronisation::local;
  spec.local_steps = 2;
  spec.shares = DataShares::linear;
  constexpr std::size_t kSamples = 600;
  Sharding sharding(kSamples, 3, spec, 1);
  std::set<std::size_t> all;
  std::size_t drawn = 0;
  for (int worker = 0; worker < 3; ++worker) {
    std::map<std::size_t, int> times;
    const auto own = static_cast<std::size_t>(100 * (worker + 1));
    // Two passes of the smallest part fill 25 steps.
    for (std::uint64_t step = 0; step < 25 * (static_cast<std::uint64_t>(worker) + 1); ++step)
      for (int position = 0; position < 8; ++position)
        ++times[sharding.sample(step, worker, position)];
    CHECK(times.size() == own);
    for (const auto& [sample, count] : times) {
      CHECK(count == 2);
      all.insert(sample);
    }
    drawn += times.size();
  }
  CHECK(drawn == kSamples);
  CHECK(all.size() == kSamples);
}
