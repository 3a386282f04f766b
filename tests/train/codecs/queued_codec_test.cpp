// What codecs on a GPU say of gradients, against those of the host: the kernels' own text and the
// code that queues them, on the host, between two or three ranks that are threads.
#include <barrier>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "tests/train/idle_communicator.hpp"
#include "tests/train/paced_gpu.hpp"
#include "tests/train/same_bits.hpp"
#include "train/codecs/queued/queued_codec.hpp"
#include "train/oracle/codec_replay.hpp"
#include "workers/collectives/sum.hpp"

using namespace dynamiccl;
using dynamiccl::testing::IdleCommunicator;
using dynamiccl::testing::NamedGpuMemory;
using dynamiccl::testing::PacedQueue;
using dynamiccl::testing::same_bits;

namespace {

using Values = std::vector<float>;

/// Ranks of one address space, whose collectives meet at a barrier.
struct Meeting {
  explicit Meeting(int size) : barrier(size), places(static_cast<std::size_t>(size)) {}
  std::barrier<> barrier;
  std::vector<std::uint8_t*> places;
};
class MeetingCommunicator final : public IdleCommunicator {
 public:
  MeetingCommunicator(Meeting& meeting, int rank, int size)
      : IdleCommunicator(rank, size), meeting_(meeting) {}
  void allreduce(const void*, void* out, std::size_t count, DataType type) override {
    const auto own = static_cast<std::size_t>(rank());
    std::vector<std::uint8_t> sum(count * element_bytes(type));
    meeting_.places[own] = static_cast<std::uint8_t*>(out);
    meeting_.barrier.arrive_and_wait();
    std::memcpy(sum.data(), meeting_.places[0], sum.size());
    for (std::size_t other = 1; other < meeting_.places.size(); ++other)
      sum_elements(sum.data(), sum.data(), meeting_.places[other], count, type);
    meeting_.barrier.arrive_and_wait();
    std::memcpy(out, sum.data(), sum.size());
  }
  /// In place alone.
  void allgather(const void* in, void* out, std::size_t count, DataType type) override {
    const auto own = static_cast<std::size_t>(rank());
    const std::size_t bytes = count * element_bytes(type);
    auto* all = static_cast<std::uint8_t*>(out);
    if (in != all + own * bytes) throw Error(ErrorKind::bug, "not in place");
    meeting_.places[own] = all;
    meeting_.barrier.arrive_and_wait();
    for (std::size_t other = 0; other < meeting_.places.size(); ++other)
      if (other != own)
        std::memcpy(all + other * bytes, meeting_.places[other] + other * bytes, bytes);
    meeting_.barrier.arrive_and_wait();
  }
  [[nodiscard]] GpuQueue* queue() override { return &queue_; }

 private:
  Meeting& meeting_;
  PacedQueue queue_;
};

/// A step whose gradients are all zero.
constexpr int kNothingYet = -1;

/// Heavy-tailed, as gradients are; some values as large as each other, some zeros.
Values gradient_of(std::size_t count, int worker, int step) {
  if (step == kNothingYet) return Values(count, 0.0F);
  std::mt19937 random(static_cast<unsigned>(100 * worker + step));
  std::normal_distribution<float> spread(0, 1);
  Values values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const float one = spread(random);
    values[i] = i % 50 == 0 ? 0.0F : i % 17 == 0 ? 0.03125F : 0.01F * one * one * one;
  }
  return values;
}

/// Gradients around the borders of chunks, buckets and bytes; some of them matrices.
const std::vector<std::size_t> kCounts{10, 640, 4096, 1, 9000, 517, 4105, 12'800};
const std::vector<std::size_t> kRows{1, 16, 64, 1, 30, 1, 5, 64};

ExchangePlan plan_of(const TrainingSpec& spec, bool alone) {
  ExchangePlan plan;
  plan.method = alone ? TrainingMethod::wfbp_a2a : TrainingMethod::bsp_a2a;
  plan.codec = codec_settings(spec);
  plan.counts = kCounts;
  plan.rows = kRows;
  plan.seed = 7;
  const auto groups = alone ? each_alone(kCounts.size()) : all_together(kCounts.size());
  plan.pieces = cut(kCounts, groups, plan.elements());
  return plan;
}

/// What each rank's gradients become in some steps, on the GPU's way.
std::vector<std::vector<Values>> queued_sums(const ExchangePlan& plan, int ranks, int steps,
                                             int first = 0) {
  Meeting meeting(ranks);
  std::vector<std::vector<Values>> sums(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      MeetingCommunicator comm(meeting, rank, ranks);
      NamedGpuMemory memory;
      Values gradients(plan.elements());
      const auto codec = make_queued_codec(comm, plan, gradients.data(), memory);
      for (int step = 0; step < steps; ++step) {
        const Values own = gradient_of(plan.elements(), rank, first + step);
        std::copy(own.begin(), own.end(), gradients.begin());
        codec->begin_step();
        for (std::size_t piece = 0; piece < plan.pieces.size(); ++piece)
          codec->sum(piece, [](const char*, const std::function<void()>& work) { work(); });
        sums[static_cast<std::size_t>(rank)].push_back(gradients);
      }
      const CodingFigures coding = codec->take_coding();
      if (coding.message_bytes != coding.formula_bytes || coding.steps != steps)
        sums[static_cast<std::size_t>(rank)].clear();
    });
  }
  for (auto& thread : threads) thread.join();
  return sums;
}

/// The same by the codecs of the host.
class HostCodecs {
 public:
  HostCodecs(const ExchangePlan& plan, int ranks) : elements_(plan.elements()), sum_(plan, ranks) {}
  const Values& sum(int step) {
    for (int rank = 0; rank < sum_.workers(); ++rank)
      sum_.values(rank) = gradient_of(elements_, rank, step);
    return sum_.sum();
  }

 private:
  std::size_t elements_;
  ReplayedSum sum_;
};

std::vector<Codec> of_gpus() {
  std::vector<Codec> codecs;
  for (const CodecRow& row : kCodecs)
    if (row.codec != Codec::none && row.on_gpus) codecs.push_back(row.codec);
  return codecs;
}

}  // namespace

TEST_CASE("codecs on GPUs say the same bits as the host's, and keep the same back",
          "[d-58][d-59][d-61][d-64][d-68][d-69][d-91]") {
  const Codec codec = GENERATE(from_range(of_gpus()));
  const bool alone = GENERATE(false, true);
  INFO(name_of(codec) << (alone ? ", a message for each gradient" : ", one message"));
  TrainingSpec spec;
  spec.compression = codec;
  if (codec != Codec::signsgd && codec != Codec::dgc) spec.error_feedback = FeedbackWish::on;
  constexpr int kRanks = 2;
  constexpr int kSteps = 3;
  const ExchangePlan plan = plan_of(spec, alone);
  const auto queued = queued_sums(plan, kRanks, kSteps);
  HostCodecs host(plan, kRanks);
  for (int step = 0; step < kSteps; ++step) {
    INFO("step " << step);
    const Values sums = host.sum(step);
    for (const auto& rank : queued) {
      REQUIRE(rank.size() == kSteps);
      CHECK(same_bits(rank[static_cast<std::size_t>(step)], sums));
    }
  }
}

TEST_CASE("so do settings that change what codecs send", "[d-68][d-92]") {
  TrainingSpec spec;
  SECTION("random numbers without feedback") {
    spec.compression = Codec::randomk;
    spec.error_feedback = FeedbackWish::off;
    spec.density = 0.3;
  }
  SECTION("QSGD of two and eight bits") {
    spec.compression = Codec::qsgd;
    spec.bits = GENERATE(2, 8);
  }
  SECTION("a density that comes down") {
    spec.compression = Codec::topk;
    spec.density_warmup = 2;
  }
  SECTION("DGC that clips") {
    spec.compression = Codec::dgc;
    spec.clip = 0.05;
  }
  SECTION("three columns") {
    spec.compression = Codec::powersgd;
    spec.rank = 3;
  }
  constexpr int kRanks = 3;
  constexpr int kSteps = 3;
  const ExchangePlan plan = plan_of(spec, false);
  const auto queued = queued_sums(plan, kRanks, kSteps);
  HostCodecs host(plan, kRanks);
  for (int step = 0; step < kSteps; ++step) {
    INFO(name_of(spec.compression) << ", step " << step);
    const Values sums = host.sum(step);
    for (const auto& rank : queued) {
      REQUIRE(rank.size() == kSteps);
      CHECK(same_bits(rank[static_cast<std::size_t>(step)], sums));
    }
  }
}

TEST_CASE("factors of gradients that were zero begin anew on GPUs as on the host", "[d-95]") {
  TrainingSpec spec;
  spec.compression = Codec::powersgd;
  constexpr int kRanks = 2;
  const ExchangePlan plan = plan_of(spec, false);
  const auto queued = queued_sums(plan, kRanks, 3, kNothingYet);
  HostCodecs host(plan, kRanks);
  for (std::size_t step = 0; step < 3; ++step) {
    INFO("step " << step);
    const Values sums = host.sum(kNothingYet + static_cast<int>(step));
    if (step > 0) CHECK(sums[20] != 0);  // of the first matrix
    for (const auto& rank : queued) CHECK(same_bits(rank[step], sums));
  }
}
