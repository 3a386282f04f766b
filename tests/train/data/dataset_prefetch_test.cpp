#include "train/data/dataset_prefetch.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <functional>

using namespace dynamiccl;
using namespace std::chrono_literals;

namespace {

/// Samples that are their own numbers; `before` is called with each number before it is given.
class Numbers final : public Dataset {
 public:
  explicit Numbers(std::function<void(std::size_t)> before) : before_(std::move(before)) {}
  [[nodiscard]] std::size_t training_size() const override { return 64; }
  [[nodiscard]] std::size_t held_out_size() const override { return 0; }
  [[nodiscard]] std::string description() const override { return "numbers"; }
  [[nodiscard]] std::string digest() const override { return ""; }
  void add_to(Batch& batch, std::size_t index) const override {
    before_(index);
    batch.labels.push_back(static_cast<std::int64_t>(index));
    ++batch.count;
  }

 private:
  std::function<void(std::size_t)> before_;
};

}  // namespace

TEST_CASE("batches made ahead are those made at once, whatever is asked for next") {
  TrainingSpec spec;
  spec.model = TrainingModel::cnn;
  spec.samples = 64;
  const auto data = open_dataset(spec);
  const Sharding sharding(64, 2, 8, 7);
  BatchPrefetcher batches(*data, sharding, 8);
  Sharding replay = sharding;
  struct Asked {
    std::uint64_t step;
    int worker;
    std::uint64_t ahead;
  };
  // In order and over an epoch's end; from the start again; another worker's; one never taken.
  for (const Asked asked : {Asked{0, 1, 1}, Asked{1, 1, 2}, Asked{2, 1, 3}, Asked{3, 1, 4},
                            Asked{4, 1, 5}, Asked{0, 1, 1}, Asked{1, 0, 9}, Asked{1, 1, 2}}) {
    const Batch& batch = batches.take(asked.step, asked.worker);
    batches.start(asked.ahead, asked.worker);
    Batch expected;
    for (int i = 0; i < 8; ++i) data->add_to(expected, replay.sample(asked.step, asked.worker, i));
    CHECK(batch.pixels == expected.pixels);
    CHECK(batch.labels == expected.labels);
    CHECK(batch.count == 8);
    CHECK(batch.side == 32);
  }
}

TEST_CASE("the next batch is made while the one taken is in use") {
  std::atomic<int> made = 0;
  const Numbers data([&](std::size_t) { ++made; });
  BatchPrefetcher batches(data, Sharding(64, 1, 4, 7), 4);
  const Batch& taken = batches.take(0, 0);
  const auto labels = taken.labels;
  CHECK(made == 4);
  batches.start(1, 0);
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (made < 8 && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(1ms);
  CHECK(made == 8);
  CHECK(taken.labels == labels);
  CHECK(batches.take(1, 0).labels != labels);
  CHECK(made == 8);
}

TEST_CASE("a sample that cannot be made is told to who takes its batch, and to nobody after it") {
  std::atomic<bool> fails = true;
  const Numbers data([&](std::size_t index) {
    if (fails) throw Error(ErrorKind::input, "sample " + std::to_string(index) + " is damaged");
  });
  BatchPrefetcher batches(data, Sharding(64, 1, 4, 7), 4);
  batches.start(3, 0);
  CHECK_THROWS_WITH(batches.take(3, 0), Catch::Matchers::ContainsSubstring("is damaged"));
  CHECK_THROWS_AS(batches.take(3, 0), Error);
  fails = false;
  CHECK(batches.take(3, 0).labels.size() == 4);
  fails = true;
  batches.start(4, 0);
  fails = false;
  // Nobody took the one that failed.
  CHECK(batches.take(5, 0).labels.size() == 4);
}

TEST_CASE("it ends while a batch is being made") {
  std::atomic<int> made = 0;
  const Numbers data([&](std::size_t) {
    std::this_thread::sleep_for(5ms);
    ++made;
  });
  {
    BatchPrefetcher batches(data, Sharding(64, 1, 4, 7), 4);
    batches.start(0, 0);
    while (made == 0) std::this_thread::sleep_for(1ms);
  }
  CHECK(made == 4);
  const BatchPrefetcher unused(data, Sharding(64, 1, 4, 7), 4);
}
