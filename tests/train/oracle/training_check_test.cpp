// The checks themselves: a library that adds in another order than the oracle is right, wherever
// the last bit falls that it rounds otherwise. Ranks are threads.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstddef>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/train/stand_in_learner.hpp"
#include "tests/train/thread_network.hpp"
#include "train/oracle/training_check.hpp"
#include "train/synchronise/round_driver.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int kWorkers = 4;
constexpr std::size_t kWeights = 500;

/// An all-reduce of floats that begins with the last rank's.
class BackwardThreads final : public ThreadCommunicator {
 public:
  using ThreadCommunicator::ThreadCommunicator;
  void allreduce(const void*, void* out, std::size_t count, DataType) override {
    const std::size_t bytes = count * sizeof(float);
    if (rank() > 0) {
      wait(isend(out, bytes, 0, kBackTag));
      return wait(irecv(out, bytes, 0, kBackTag));
    }
    auto* own = static_cast<float*>(out);
    std::vector<float> sum(count);
    std::vector<float> more(count);
    wait(irecv(sum.data(), bytes, size() - 1, kBackTag));
    for (int from = size() - 2; from >= 0; --from) {
      if (from > 0) wait(irecv(more.data(), bytes, from, kBackTag));
      std::transform(sum.begin(), sum.end(), from > 0 ? more.data() : own, sum.begin(),
                     std::plus<>());
    }
    std::copy(sum.begin(), sum.end(), own);
    for (int to = 1; to < size(); ++to) wait(isend(out, bytes, to, kBackTag));
  }

 private:
  static constexpr int kBackTag = -4;
};

/// A library on GPUs whose sums are all off by as much.
class WrongThreads final : public ThreadCommunicator {
 public:
  using ThreadCommunicator::ThreadCommunicator;
  [[nodiscard]] bool works_on_gpu() const override { return true; }
  void allreduce(const void* in, void* out, std::size_t count, DataType type) override {
    ThreadCommunicator::allreduce(in, out, count, type);
    auto* sums = static_cast<float*>(out);
    std::for_each(sums, sums + count, [](float& sum) { sum += kWrong; });
  }
  static constexpr float kWrong = 1.6e-3F;
};

/// Trains, and keeps no weights of any step.
class KeepingNothing final : public StepDriver {
 public:
  explicit KeepingNothing(TrainingWorker& worker) : worker_(worker) {}
  StepTimes step() override {
    worker_.step_of_all();
    return {};
  }
  StepTimes finish() override { return {}; }
  std::optional<double> take_busy_us() override { return std::nullopt; }
  std::vector<Span> take_spans() override { return {}; }
  [[nodiscard]] std::uint64_t sent_bytes() const override { return 0; }
  [[nodiscard]] std::size_t extra_bytes() const override { return 0; }

 private:
  TrainingWorker& worker_;
};

/// Weights are drawn to the pixels of each batch, and away from where each has its kink: as behind
/// a ReLU, another bit there is another gradient.
class KinkedLearner final : public StandInLearner {
 public:
  explicit KinkedLearner(std::vector<float> kinks) : kinks_(std::move(kinks)) {
    for (std::size_t i = 0; i < kWeights; ++i) weights_[i] = 0.01F * static_cast<float>(i % 7);
    parameters_.push_back({weights_.data(), kWeights, 0});
  }
  [[nodiscard]] int stages() const override { return 1; }
  [[nodiscard]] TensorMemory& memory() override { return *memory_; }
  void load(const Batch& batch) override { pixels_ = batch.pixels; }
  void backward() override {
    std::vector<float> gradient(kWeights);
    for (std::size_t i = 0; i < kWeights; ++i)
      gradient[i] = weights_[i] - pixels_[i] + (weights_[i] >= kinks_[i] ? 0.5F : 0.0F);
    callback_(0, gradient.data());
  }

 private:
  std::unique_ptr<TensorMemory> memory_ = make_host_memory();
  std::vector<float> weights_ = std::vector<float>(kWeights);
  std::vector<float> pixels_;
  std::vector<float> kinks_;
};

using Work =
    std::function<void(Communicator&, const ExchangePlan&, TrainingWorker&, Learner&, CellRecord&)>;

struct Ended {
  std::vector<CellRecord> records;
  std::vector<std::string> failures;
};

/// One thread a rank.
template <class Ranks>
Ended ended_on_all_ranks(const TrainingSpec& spec, const std::vector<float>& kinks,
                         const Work& work) {
  ExchangePlan plan;
  plan.method = spec.method;
  plan.counts = {kWeights};
  plan.pieces = cut(plan.counts, each_alone(1), 100);
  plan.credit_bytes = 1U << 20;
  const auto data = open_dataset(spec);
  Network network;
  std::vector<CellRecord> records(kWorkers);
  std::vector<std::string> failures(kWorkers);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorkers; ++rank) {
    threads.emplace_back([&, rank] {
      const auto own = static_cast<std::size_t>(rank);
      try {
        Ranks comm(network, rank, kWorkers);
        KinkedLearner learner(kinks);
        TrainingWorker worker(spec, learner, *data, rank, kWorkers, 1);
        worker.set_order({0});
        records[own].status = CellStatus::ok;
        records[own].training.emplace();
        work(comm, plan, worker, learner, records[own]);
      } catch (const std::exception& error) {
        failures[own] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return {std::move(records), std::move(failures)};
}

/// Every record must end well. @returns what the first rank's became
template <class Ranks>
CellRecord on_all_ranks(const TrainingSpec& spec, const std::vector<float>& kinks,
                        const Work& work) {
  const auto [records, failures] = ended_on_all_ranks<Ranks>(spec, kinks, work);
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    INFO("rank " << rank << ": " << failures[rank] << records[rank].reason);
    CHECK(failures[rank].empty());
    CHECK(records[rank].status == CellStatus::ok);
    CHECK(records[rank].wrong == 0);
  }
  return records.front();
}

std::unique_ptr<StepDriver> driver_of(const TrainingSpec& spec, Communicator& comm,
                                      const ExchangePlan& plan, TrainingWorker& worker,
                                      Learner& learner) {
  if (goes_by_rounds(spec)) return make_round_driver(comm, plan, spec, worker, Micros(30e6));
  return make_step_driver(comm, plan, spec, worker, learner, nullptr, nullptr);
}

/// What the workers have after the first step, or round.
template <class Ranks>
std::vector<float> first_weights(const TrainingSpec& spec) {
  std::vector<float> weights;
  const std::vector<float> none(kWeights, std::numeric_limits<float>::infinity());
  on_all_ranks<Ranks>(spec, none,
                      [&](auto& comm, const auto& plan, auto& worker, auto& learner, CellRecord&) {
                        const auto driving = driver_of(spec, comm, plan, worker, learner);
                        driving->step();
                        driving->finish();
                        if (comm.rank() == 0) weights = worker.weights();
                      });
  return weights;
}

}  // namespace

TEST_CASE("a last bit of another order of addition is not held against a training",
          "[d-16][d-17][d-28]") {
  TrainingSpec spec;
  spec.model = TrainingModel::mlp;
  spec.batch = 1;
  spec.learning_rate = 0.05;
  spec.method = TrainingMethod::bsp_a2a;
  spec.oracle = 4;
  SECTION("steps") {}
  SECTION("steps whose last sums are applied in the next one") {
    spec.method = TrainingMethod::bytescheduler_a2a;
  }
  SECTION("rounds with a momentum of averages") {
    spec.synchronisation = Synchronisation::local;
    spec.local_steps = 2;
    spec.slow_momentum = 0.5;
  }
  const auto in_order = first_weights<ThreadCommunicator>(spec);
  const auto backward = first_weights<BackwardThreads>(spec);
  // Where the last bit differs, it decides on which side of the kink the weight is.
  std::vector<float> kinks(kWeights, std::numeric_limits<float>::infinity());
  std::size_t decided = 0;
  for (std::size_t i = 0; i < kWeights; ++i) {
    if (in_order[i] == backward[i]) continue;
    kinks[i] = std::max(in_order[i], backward[i]);
    ++decided;
  }
  REQUIRE(decided > 0);
  const CellRecord record = on_all_ranks<BackwardThreads>(
      spec, kinks, [&](auto& comm, const auto& plan, auto& worker, auto& learner, auto& own) {
        const auto make = [&] { return driver_of(spec, comm, plan, worker, learner); };
        if (goes_by_rounds(spec))
          return check_rounds(comm, plan, spec, &worker, Micros(30e6), make, own);
        check_oracle(comm, plan, spec.oracle, &worker, make, own);
      });
  // Another order it was, all the same.
  CHECK(record.training->max_difference > 0);
  CHECK(record.training->max_difference <= kOracleTolerance);
}

TEST_CASE("many steps of a check on GPUs are held against what one may be off by", "[d-16][d-28]") {
  TrainingSpec spec;
  spec.model = TrainingModel::mlp;
  spec.batch = 1;
  spec.learning_rate = 0.05;
  // A wrong step is not hidden, nor made larger, by those before it.
  spec.momentum = 0;
  spec.method = TrainingMethod::bsp_a2a;
  spec.oracle = 100;
  SECTION("steps") {}
  SECTION("rounds") {
    spec.synchronisation = Synchronisation::local;
    spec.local_steps = 5;
  }
  const std::vector<float> none(kWeights, std::numeric_limits<float>::infinity());
  const auto ended = ended_on_all_ranks<WrongThreads>(
      spec, none, [&](auto& comm, const auto& plan, auto& worker, auto& learner, auto& own) {
        const auto make = [&] { return driver_of(spec, comm, plan, worker, learner); };
        if (goes_by_rounds(spec))
          return check_rounds(comm, plan, spec, &worker, Micros(30e6), make, own);
        check_oracle(comm, plan, spec.oracle, &worker, make, own);
      });
  for (std::size_t rank = 0; rank < ended.records.size(); ++rank) {
    INFO("rank " << rank << ": " << ended.failures[rank]);
    CHECK(ended.failures[rank].empty());
    CHECK(ended.records[rank].status == CellStatus::failed);
    CHECK_THAT(ended.records[rank].reason, ContainsSubstring("by more than 1e-05"));
  }
}

TEST_CASE("a check whose steps kept no weights compares nothing, and says so", "[safety]") {
  TrainingSpec spec;
  spec.model = TrainingModel::mlp;
  spec.batch = 1;
  spec.method = TrainingMethod::bsp_a2a;
  const std::vector<float> none(kWeights, std::numeric_limits<float>::infinity());
  const auto ended = ended_on_all_ranks<ThreadCommunicator>(
      spec, none, [&](auto& comm, const auto& plan, auto& worker, auto&, auto& own) {
        const auto make = [&] { return std::make_unique<KeepingNothing>(worker); };
        check_oracle(comm, plan, 3, &worker, make, own);
      });
  for (const std::string& failure : ended.failures)
    CHECK_THAT(failure, ContainsSubstring("keeps the weights that it begins with"));
}
