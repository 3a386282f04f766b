// Servers that sum on their GPU, and one without a GPU behind a chief, against the one process that
// checks them on real ones. The GPU is host memory that says it is one, its kernels are their own
// text compiled for the host, ranks are threads.
#include "train/exchange/gpu_server.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <functional>
#include <random>

#include "tests/train/queued_threads.hpp"
#include "train/exchange/server_kernels.hpp"
#include "train/oracle/training_check.hpp"
#include "train/synchronise/round_driver.hpp"
#include "train/synchronise/step_driver.hpp"
#include "workers/collectives/sum.hpp"
#include "workers/device/device.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;

namespace {

/// Host memory that says it is a GPU's.
class NamedDevice final : public Device {
 public:
  [[nodiscard]] std::string name() const override { return "memory"; }
  [[nodiscard]] std::string pci() const override { return ""; }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
    auto owner = std::make_shared<std::vector<std::byte>>(bytes);
    return {owner, owner->data()};
  }
  std::shared_ptr<std::byte> allocate_pinned(std::size_t bytes) override { return allocate(bytes); }
  void copy_to_host(void* host, const void* device, std::size_t bytes) override {
    std::memcpy(host, device, bytes);
  }
  void copy_to_device(void* device, const void* host, std::size_t bytes) override {
    std::memcpy(device, host, bytes);
  }
  void fill(const DataSource&, void*, int, std::uint64_t, std::size_t) override {}
  DataVerdict verify(const DataSource&, const void*, const std::vector<ExpectedPart>&) override {
    return {};
  }
  void poison(void*, std::size_t) override {}
  void multiply_for(std::chrono::milliseconds) override {}
};

enum class Fault { none, left_out, used_twice, stale_answer };
/// Of the test that runs; ranks only read it.
Fault planted = Fault::none;

/// Ranks of which the first is the server; rooted calls go by a chief, the first worker.
class ServedThreads final : public QueuedThreads {
 public:
  using QueuedThreads::QueuedThreads;
  [[nodiscard]] Device* device() override { return &device_; }

  void alltoallv(const void* in, void* out, const PairCounts& counts, DataType type) override {
    PairCounts kept = counts;
    std::vector<float> lost;
    const bool is_stale = planted == Fault::stale_answer && rank() == size() - 1;
    if (is_stale) {
      // Received, and never seen.
      lost.resize(static_cast<std::size_t>(counts.receive[0]));
      if (!lost.empty()) out = lost.data();
    }
    QueuedThreads::alltoallv(in, out, kept, type);
    if (rank() != 0 || counts.receive.back() == 0) return;
    auto* slots = static_cast<float*>(out);
    const auto count = static_cast<std::size_t>(counts.receive.back());
    float* last = slots + counts.receive_at.back();
    if (planted == Fault::left_out) std::fill_n(last, count, 0.0F);
    if (planted == Fault::used_twice) std::copy_n(slots, count, last);
  }
  void reduce(const void* in, void* out, std::size_t count, DataType, int root) override {
    const std::size_t bytes = count * sizeof(float);
    if (root != 0) throw Error(ErrorKind::bug, "the server is the first rank");
    if (rank() == 0) return wait(irecv(out, bytes, kChief, kRootedTag));
    if (rank() != kChief) return wait(isend(in, bytes, kChief, kRootedTag));
    std::vector<float> sum(count);
    std::memcpy(sum.data(), in, bytes);
    std::vector<float> more(count);
    for (int from = kChief + 1; from < size(); ++from) {
      wait(irecv(more.data(), bytes, from, kRootedTag));
      if (planted == Fault::left_out && from == size() - 1) continue;
      sum_elements(sum.data(), sum.data(), more.data(), count, DataType::float32);
    }
    if (planted == Fault::used_twice)
      sum_elements(sum.data(), sum.data(), in, count, DataType::float32);
    wait(isend(sum.data(), bytes, 0, kRootedTag));
  }
  void broadcast(void* data, std::size_t count, DataType, int root) override {
    const std::size_t bytes = count * sizeof(float);
    if (root != 0) throw Error(ErrorKind::bug, "the server is the first rank");
    // From the server to the chief and along the workers, as NCCL's ring goes.
    if (rank() != 0) {
      std::vector<float> lost(count);
      const bool is_stale = planted == Fault::stale_answer && rank() == size() - 1;
      wait(irecv(is_stale ? lost.data() : data, bytes, rank() - 1, kRootedTag));
    }
    if (rank() + 1 < size()) wait(isend(data, bytes, rank() + 1, kRootedTag));
  }

 private:
  static constexpr int kChief = 1;
  static constexpr int kRootedTag = -3;
  NamedDevice device_;
};

TrainingSpec served(ServerSums sums, TrainingMethod method) {
  TrainingSpec spec;
  spec.model = TrainingModel::mlp;
  spec.batch = 1;
  spec.learning_rate = 0.05;
  spec.method = method;
  spec.server_sums = sums;
  spec.servers = 1;
  spec.oracle = 4;
  spec.samples = 64;
  return spec;
}

ExchangePlan plan_of(const TrainingSpec& spec) {
  ExchangePlan plan;
  plan.method = spec.method;
  plan.counts = kDrawnCounts;
  // More pieces than gradients, none of the others' size.
  plan.pieces = cut(plan.counts, each_alone(2), 130);
  plan.servers = spec.servers;
  plan.server_sums = spec.server_sums;
  plan.server_sgd = server_sgd(spec);
  assign_servers(plan.pieces, plan.servers);
  return plan;
}

RanRanks train(const TrainingSpec& spec, int ranks) {
  return run_ranks<ServedThreads>(
      spec, plan_of(spec), ranks,
      [&](ServedThreads& comm, const ExchangePlan& plan, TrainingWorker* worker, Learner& learner,
          CellRecord& record) {
        const auto driver = [&] {
          if (goes_by_rounds(spec))
            return make_round_driver(comm, plan, spec, *worker, Micros(30e6));
          return make_step_driver(comm, plan, spec, *worker, learner, nullptr, nullptr);
        };
        if (goes_by_rounds(spec))
          return check_rounds(comm, plan, spec, worker, Micros(30e6), driver, record);
        check_oracle(comm, plan, spec.oracle, worker, driver, record);
      });
}

void must_be_right(const RanRanks& ran, double most) {
  for (std::size_t rank = 0; rank < ran.records.size(); ++rank) {
    INFO("rank " << rank << ": " << ran.failures[rank] << ran.records[rank].reason);
    CHECK(ran.failures[rank].empty());
    CHECK(ran.records[rank].status == CellStatus::ok);
    CHECK(ran.records[rank].wrong == 0);
    CHECK(ran.records[rank].training->max_difference <= most);
  }
}

}  // namespace

TEST_CASE("servers that sum on their GPU train what one process would, to the bit", "[d-04]") {
  const int workers = GENERATE(1, 2, 3);
  const auto method = GENERATE(TrainingMethod::bsp_ps, TrainingMethod::wfbp_ps);
  TrainingSpec spec = served(ServerSums::gpu, method);
  double most = 0;
  SECTION("workers apply the sums") {}
  SECTION("two servers share the pieces") { spec.servers = 2; }
  // A worker's own update of a GPU rounds elsewhere.
  SECTION("servers apply them") {
    spec.optimizer = OptimizerPlace::server;
    most = 1e-6;
  }
  must_be_right(train(spec, spec.servers + workers), most);
}

TEST_CASE("a server without a GPU is fed by a chief and trains what one process would", "[d-05]") {
  const int workers = GENERATE(1, 2, 3);
  const auto method = GENERATE(TrainingMethod::bsp_ps, TrainingMethod::wfbp_ps);
  TrainingSpec spec = served(ServerSums::chief, method);
  double most = 0;
  SECTION("workers apply the sums") {}
  SECTION("the server applies them") {
    spec.optimizer = OptimizerPlace::server;
    most = 1e-6;
  }
  must_be_right(train(spec, 1 + workers), most);
}

TEST_CASE("bytes reckoned of a GPU's server and of a chief are those sent", "[d-04][d-05]") {
  const auto sums = GENERATE(ServerSums::gpu, ServerSums::chief);
  const int workers = GENERATE(1, 2, 3, 4);
  const TrainingSpec spec = served(sums, TrainingMethod::wfbp_ps);
  const int ranks = 1 + workers;
  std::vector<std::uint64_t> sent(static_cast<std::size_t>(ranks));
  std::vector<std::uint64_t> reckoned(sent.size());
  std::vector<std::size_t> held(sent.size());
  std::vector<TrainingFigures> figures(sent.size());
  constexpr int kSteps = 2;
  const RanRanks ran = run_ranks<ServedThreads>(
      spec, plan_of(spec), ranks,
      [&](ServedThreads& comm, const ExchangePlan& plan, TrainingWorker* worker, Learner& learner,
          CellRecord&) {
        const auto rank = static_cast<std::size_t>(comm.rank());
        if (worker == nullptr) {
          const auto server = make_step_server(comm, plan, spec, Micros(30e6));
          server->serve(kSteps);
          reckoned[rank] = server->sent_bytes();
        } else {
          const auto driver =
              make_step_driver(comm, plan, spec, *worker, learner, nullptr, nullptr);
          for (int step = 0; step < kSteps; ++step) driver->step();
          driver->finish();
          reckoned[rank] = driver->sent_bytes();
          held[rank] = driver->extra_bytes() - worker->answer_bytes();
          driver->describe(figures[rank]);
        }
        sent[rank] = comm.sent;
      });
  for (const std::string& failure : ran.failures) CHECK(failure.empty());
  const std::uint64_t volume = kSteps * 500 * sizeof(float);
  const std::size_t piece = 130 * sizeof(float);
  const bool by_chief = sums == ServerSums::chief;
  std::uint64_t others = 0;
  std::uint64_t others_reckoned = 0;
  for (std::size_t rank = 0; rank < sent.size(); ++rank) {
    INFO("rank " << rank << " of " << ranks);
    const bool is_chief = by_chief && rank == 1;
    if (rank < 2) CHECK(reckoned[rank] == sent[rank]);
    if (rank >= 2) others += sent[rank];
    if (rank >= 2) others_reckoned += reckoned[rank];
    CHECK(held[rank] == (is_chief ? piece : 0));
    CHECK(figures[rank].details.contains("staging_bytes") == is_chief);
    if (is_chief) CHECK(figures[rank].details["staging_bytes"] == piece);
  }
  // Who ends a chain of workers is the library's choice: each is reckoned as their mean, in whole
  // bytes of a piece.
  const std::uint64_t pieces = kSteps * plan_of(spec).pieces.size();
  CHECK(others_reckoned <= others);
  CHECK(others <= others_reckoned + pieces * static_cast<std::uint64_t>(workers));
  const std::uint64_t busiest = *std::max_element(reckoned.begin(), reckoned.end());
  CHECK(2.0 * static_cast<double>(busiest) ==
        parameter_volumes(spec, workers) * static_cast<double>(volume));
}

TEST_CASE("weights after local steps meet at a server's GPU", "[d-04][d-05]") {
  const auto sums = GENERATE(ServerSums::gpu, ServerSums::chief);
  TrainingSpec spec = served(sums, TrainingMethod::bsp_ps);
  spec.synchronisation = Synchronisation::local;
  spec.local_steps = 3;
  must_be_right(train(spec, 3), 1e-6);
}

TEST_CASE("a server's GPU that sums the wrong messages fails the check", "[d-04][d-05]") {
  const auto sums = GENERATE(ServerSums::gpu, ServerSums::chief);
  const auto fault = GENERATE(Fault::left_out, Fault::used_twice, Fault::stale_answer);
  INFO(name_of(sums) << ", fault " << static_cast<int>(fault));
  planted = fault;
  const RanRanks ran = train(served(sums, TrainingMethod::wfbp_ps), 3);
  planted = Fault::none;
  bool failed = false;
  for (const CellRecord& record : ran.records) failed |= record.status == CellStatus::failed;
  CHECK(failed);
}

TEST_CASE("kernels of servers say what the host's loops say, bit for bit", "[d-04]") {
  constexpr std::size_t kStride = 40'000;
  constexpr std::size_t kCount = 39'001;  // more than a block's threads, no multiple of them
  constexpr int kSlots = 3;
  std::mt19937 random(7);
  std::normal_distribution<float> spread;
  std::vector<float> slots(kStride * kSlots);
  for (float& value : slots) value = spread(random);
  std::vector<float> expected(slots.begin(), slots.begin() + kCount);
  for (std::size_t slot = 1; slot < kSlots; ++slot)
    sum_elements(expected.data(), expected.data(), slots.data() + slot * kStride, kCount,
                 DataType::float32);
  // Into the first slot, as an optimizer adds.
  REQUIRE(kernels::add_slots(slots.data(), kStride, kSlots, kCount, slots.data(), nullptr) ==
          nullptr);
  slots.resize(kCount);
  CHECK(unlike_bits(slots, expected) == 0);

  const Sgd sgd{0.1F, 0.9F};
  std::vector<float> weights(kCount);
  for (float& value : weights) value = spread(random);
  std::vector<float> velocity = weights;
  std::vector<float> weights_wanted = weights;
  std::vector<float> velocity_wanted = velocity;
  sgd_update(sgd, weights_wanted.data(), velocity_wanted.data(), expected.data(), 1.0F / 3, kCount);
  REQUIRE(kernels::update_served(sgd.rate, sgd.momentum, 1.0F / 3, expected.data(), velocity.data(),
                                 weights.data(), kCount, nullptr) == nullptr);
  CHECK(unlike_bits(weights, weights_wanted) == 0);
  CHECK(unlike_bits(velocity, velocity_wanted) == 0);
}
