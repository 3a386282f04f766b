// What is queued, in which order and behind what: the calls of one rank of three, written down.
// That their sums are right on GPUs is for the trainers' own tests.
#include <fmt/format.h>
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <limits>
#include <numeric>
#include <random>
#include <thread>

#include "tests/train/idle_communicator.hpp"
#include "tests/train/thread_network.hpp"
#include "train/exchange/queued_exchange.hpp"
#include "workers/clock.hpp"

using namespace dynamiccl;
using Catch::Matchers::ContainsSubstring;
using dynamiccl::testing::IdleCommunicator;
using dynamiccl::testing::Network;
using dynamiccl::testing::ThreadCommunicator;

namespace {

using Log = std::vector<std::string>;

class LoggingQueue final : public GpuQueue {
 public:
  explicit LoggingQueue(Log& log) : log_(log) {}
  void mark_start() override {}
  void mark_stop() override {}
  double marked_us() override { return 0; }
  void begin_capture() override {}
  void end_capture() override {}
  void replay() override {}
  void follow(void* /*stream*/) override { log_.emplace_back("follow"); }
  void note(std::size_t number) override { log_.push_back(fmt::format("note {}", number)); }
  void note_also(std::size_t number) override { log_.push_back(fmt::format("also {}", number)); }
  void hold_back(void* /*stream*/, std::size_t number) override {
    log_.push_back(fmt::format("hold {}", number));
  }
  void stamp(std::size_t number) override { log_.push_back(fmt::format("stamp {}", number)); }
  [[nodiscard]] double between_us(std::size_t from, std::size_t to) override {
    return static_cast<double>(to) - static_cast<double>(from);
  }
  void use_lane(std::size_t lane) override {
    if (lane != lane_) log_.push_back(fmt::format("lane {}", lane));
    lane_ = lane;
  }

 private:
  Log& log_;
  std::size_t lane_ = 0;
};

class LoggingCommunicator final : public IdleCommunicator {
 public:
  LoggingCommunicator(Log& log, const float* base, int rank = 1)
      : IdleCommunicator(rank, 3), log_(log), base_(base), queue_(log) {}
  void allreduce(const void* in, void* out, std::size_t count, DataType) override {
    CHECK(in == out);
    say("sum", in, count);
  }
  void allgather(const void* in, void* out, std::size_t count, DataType) override {
    CHECK(place(in) == place(out) + part_at(count));
    say("gather", out, 3 * count);
  }
  void reduce_scatter(const void* in, void* out, std::size_t count, DataType) override {
    CHECK(place(out) == place(in) + part_at(count));
    say("scatter", in, 3 * count);
  }
  std::string choose(const CallShape& shape) override {
    log_.push_back("choose " + shape.algorithm);
    return shape.algorithm;
  }
  Request isend(const void* data, std::size_t bytes, int to, int /*tag*/) override {
    log_.push_back(fmt::format("word of {} bytes to {}", bytes, to));
    last_word_.assign(static_cast<const std::byte*>(data),
                      static_cast<const std::byte*>(data) + bytes);
    return {};
  }
  [[nodiscard]] GpuQueue* queue() override { return &queue_; }
  void check_queued() const override {
    throw Error(ErrorKind::environment, "remote rank has gone");
  }

 private:
  [[nodiscard]] std::size_t part_at(std::size_t count) const {
    return static_cast<std::size_t>(rank()) * count;
  }
  [[nodiscard]] std::size_t place(const void* at) const {
    return static_cast<std::size_t>(static_cast<const float*>(at) - base_);
  }
  void say(const char* what, const void* at, std::size_t count) {
    log_.push_back(fmt::format("{} {}+{}", what, place(at), count));
  }

  Log& log_;
  const float* base_;
  std::vector<std::byte> last_word_;
  LoggingQueue queue_;
};

/// Gradients of 6, 3, 1 and 9 elements: the two in the middle make one piece.
ExchangePlan plan_of(TrainingMethod method, std::size_t lanes = 1) {
  ExchangePlan plan;
  plan.path.lanes = lanes;
  plan.method = method;
  plan.counts = {6, 3, 1, 9};
  plan.pieces = {{0, 6, 0, 1}, {6, 4, 1, 3}, {10, 9, 3, 4}};
  return plan;
}

/// A large message on each side of two small ones, and one that has just enough for all lanes.
ExchangePlan large_plan(TrainingMethod method, std::size_t lanes) {
  ExchangePlan plan;
  plan.path.lanes = lanes;
  plan.method = method;
  const std::size_t most = largest_whole(lanes);
  plan.counts = {3 * most + 5, 700, 31, most, most + 1};
  plan.pieces = cut(plan.counts, each_alone(plan.counts.size()), std::size_t{1} << 40);
  return plan;
}

struct Queued {
  explicit Queued(TrainingMethod method, std::size_t lanes = 1) : Queued(plan_of(method, lanes)) {}
  explicit Queued(const ExchangePlan& plan, int rank = 1)
      : gradients(plan.elements(), 0.0F),
        comm(log, gradients.data(), rank),
        memory(make_host_memory()),
        exchange(comm, plan, gradients.data(), *memory) {
    exchange.start_step();
  }
  Log log;
  std::vector<float> gradients;
  LoggingCommunicator comm;
  std::unique_ptr<TensorMemory> memory;
  QueuedExchange exchange;
};

/// What each lane was given, in order.
std::vector<Log> by_lane(const Log& log, std::size_t lanes) {
  std::vector<Log> given(lanes);
  std::size_t lane = 0;
  for (const std::string& line : log) {
    if (line.rfind("lane ", 0) == 0) {
      lane = std::stoul(line.substr(5));
    } else if (line != "follow") {
      given.at(lane).push_back(line);
    }
  }
  return given;
}

/// Sums among threads at once, whatever the lane; what a rank has no sum of is spoilt.
class SummingCommunicator final : public ThreadCommunicator {
 public:
  SummingCommunicator(Network& network, int rank, int size, Log& log)
      : ThreadCommunicator(network, rank, size), queue_(log) {}
  void reduce_scatter(const void* in, void* out, std::size_t count, DataType type) override {
    auto* data = const_cast<float*>(static_cast<const float*>(in));
    std::vector<float> sums(data, data + static_cast<std::size_t>(size()) * count);
    allreduce(sums.data(), sums.data(), sums.size(), type);
    std::fill_n(data, sums.size(), std::numeric_limits<float>::quiet_NaN());
    std::copy_n(sums.data() + static_cast<std::size_t>(rank()) * count, count,
                static_cast<float*>(out));
  }
  void allgather(const void* in, void* out, std::size_t count, DataType type) override {
    std::vector<float> all(static_cast<std::size_t>(size()) * count, 0.0F);
    std::copy_n(static_cast<const float*>(in), count,
                all.data() + static_cast<std::size_t>(rank()) * count);
    allreduce(all.data(), all.data(), all.size(), type);
    std::copy(all.begin(), all.end(), static_cast<float*>(out));
  }
  [[nodiscard]] GpuQueue* queue() override { return &queue_; }

 private:
  LoggingQueue queue_;
};

}  // namespace

TEST_CASE("queued sums follow the plan's order, whatever the order of gradients", "[d-40]") {
  Queued queued(TrainingMethod::mg_wfbp);
  queued.exchange.ready(2);
  queued.exchange.ready(3);
  CHECK(queued.log.empty());
  queued.exchange.ready(0);
  CHECK(queued.log == Log{"follow", "sum 0+6", "note 0"});
  queued.exchange.ready(1);
  CHECK(queued.log ==
        Log{"follow", "sum 0+6", "note 0", "follow", "sum 6+4", "note 1", "sum 10+9", "note 2"});
}

TEST_CASE("computation waits once for each queued piece", "[d-40]") {
  Queued queued(TrainingMethod::mg_wfbp);
  for (std::size_t i = 0; i < 4; ++i) queued.exchange.ready(i);
  queued.log.clear();
  for (std::size_t i = 0; i < 4; ++i) queued.exchange.wait(i);
  CHECK(queued.log == Log{"hold 0", "hold 1", "hold 2"});
  // The next step begins anew.
  queued.exchange.start_step();
  queued.log.clear();
  queued.exchange.ready(0);
  queued.exchange.wait(0);
  CHECK(queued.log == Log{"follow", "sum 0+6", "note 0", "hold 0"});
}

TEST_CASE("DeAR's queued halves cover every element once, gathered in forward order", "[dear]") {
  Queued queued(TrainingMethod::dear);
  for (std::size_t i = 0; i < 4; ++i) queued.exchange.ready(i);
  // Piece 1 has an element that three ranks cannot share.
  CHECK(queued.log == Log{"follow", "scatter 0+6", "follow", "scatter 6+3", "sum 9+1", "follow",
                          "scatter 10+9", "gather 10+9", "note 2", "gather 6+3", "note 1",
                          "gather 0+6", "note 0"});
  CHECK(queued.exchange.sent_bytes() == 4 * (2 * 6 * 2 / 3 + 2 * 9 * 2 / 3) + 2 * 16 * 2 / 3);
}

TEST_CASE("pieces on lanes side by side each follow the gradients, halves stay on one lane",
          "[d-48][dear]") {
  Queued sums(TrainingMethod::mg_wfbp, 2);
  for (std::size_t i = 0; i < 4; ++i) sums.exchange.ready(i);
  // Six elements on the first lane, four on the second, which has fewest when the nine come.
  CHECK(sums.log == Log{"follow", "sum 0+6", "note 0", "lane 1", "follow", "sum 6+4", "note 1",
                        "lane 0", "lane 1", "follow", "sum 10+9", "note 2", "lane 0"});
  Queued halves(TrainingMethod::dear, 2);
  for (std::size_t i = 4; i-- > 0;) halves.exchange.ready(i);
  CHECK(halves.log == Log{"follow", "scatter 0+6", "lane 1", "follow", "scatter 6+3", "sum 9+1",
                          "scatter 10+9", "gather 10+9", "note 2", "gather 6+3", "note 1", "lane 0",
                          "gather 0+6", "note 0"});
}

TEST_CASE("a large piece goes over all lanes, and who waits for it waits for all of them",
          "[d-40]") {
  Queued queued(large_plan(TrainingMethod::mg_wfbp, 2));
  for (std::size_t i = 0; i < 5; ++i) queued.exchange.ready(i);
  const auto lanes = by_lane(queued.log, 2);
  constexpr std::size_t kMiB = (1U << 20) / sizeof(float);
  // 12-element units of three ranks; the smaller pieces go where fewest bytes went before.
  const std::size_t half = (6 * kMiB + 5) / 2 / 12 * 12;
  const std::size_t last = 8 * kMiB + 736;
  const std::size_t second = (2 * kMiB + 1) / 2 / 12 * 12;
  CHECK(lanes[0] == Log{fmt::format("sum 0+{}", half), "note 0",
                        fmt::format("sum {}+700", 6 * kMiB + 5), "note 1",
                        fmt::format("sum {}+{}", last, second), "note 4"});
  CHECK(lanes[1] == Log{fmt::format("sum {}+{}", half, 6 * kMiB + 5 - half), "also 0",
                        fmt::format("sum {}+31", 6 * kMiB + 705), "note 2",
                        fmt::format("sum {}+{}", 6 * kMiB + 736, 2 * kMiB), "note 3",
                        fmt::format("sum {}+{}", last + second, 2 * kMiB + 1 - second), "also 4"});
  CHECK(queued.log.back() == "lane 0");
  queued.log.clear();
  for (std::size_t i = 0; i < 5; ++i) queued.exchange.wait(i);
  CHECK(queued.log == Log{"hold 0", "hold 1", "hold 2", "hold 3", "hold 4"});
}

TEST_CASE("every lane gets the same calls on every rank, whatever the order of its gradients",
          "[d-40]") {
  std::mt19937 random(3);
  for (const auto method : {TrainingMethod::mg_wfbp, TrainingMethod::dear}) {
    for (const std::size_t lanes : {1U, 2U, 4U, 8U}) {
      const ExchangePlan plan = large_plan(method, lanes);
      std::vector<std::vector<Log>> given;
      for (int rank = 0; rank < 3; ++rank) {
        Queued queued(plan, rank);
        std::vector<std::size_t> order(plan.counts.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::shuffle(order.begin(), order.end(), random);
        for (const std::size_t i : order) queued.exchange.ready(i);
        given.push_back(by_lane(queued.log, lanes));
        std::uint64_t bytes = 0;
        for (const auto& piece : plan.pieces) bytes += 2 * piece.count * sizeof(float) * 2 / 3;
        CHECK(queued.exchange.sent_bytes() == bytes);
      }
      CHECK(given[1] == given[0]);
      CHECK(given[2] == given[0]);
      for (const Log& lane : given[0]) CHECK_FALSE(lane.empty());
    }
  }
}

TEST_CASE("stripes cover each piece once, whole parts of 16 bytes for each rank but in the last",
          "[d-40]") {
  for (const int ranks : {2, 3, 7}) {
    for (const std::size_t lanes : {1U, 2U, 4U, 8U}) {
      const ExchangePlan plan = large_plan(TrainingMethod::dear, lanes);
      const auto stripes = stripes_of(plan, ranks);
      REQUIRE(stripes.size() == plan.pieces.size());
      for (std::size_t i = 0; i < stripes.size(); ++i) {
        const Piece& piece = plan.pieces[i];
        const bool whole = lanes == 1 || piece.count <= largest_whole(lanes);
        CHECK(stripes[i].size() == (whole ? 1 : lanes));
        std::size_t next = piece.offset;
        for (const Stripe& stripe : stripes[i]) {
          CHECK(stripe.offset == next);
          CHECK(stripe.count > 0);
          next += stripe.count;
          if (next < piece.offset + piece.count)
            CHECK(stripe.count % (4 * static_cast<std::size_t>(ranks)) == 0);
        }
        CHECK(next == piece.offset + piece.count);
      }
    }
  }
}

TEST_CASE("pieces over lanes are summed once by every rank", "[d-40]") {
  constexpr int kRanks = 3;
  for (const auto method : {TrainingMethod::mg_wfbp, TrainingMethod::dear}) {
    const ExchangePlan plan = large_plan(method, 2);
    Network network;
    std::vector<std::vector<float>> sums(kRanks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        Log log;
        SummingCommunicator comm(network, rank, kRanks, log);
        const auto memory = make_host_memory();
        auto& own = sums[static_cast<std::size_t>(rank)];
        own.resize(plan.elements());
        for (std::size_t i = 0; i < own.size(); ++i)
          own[i] = static_cast<float>(i % 1000 + static_cast<std::size_t>(rank) * 1000);
        QueuedExchange exchange(comm, plan, own.data(), *memory);
        exchange.start_step();
        for (std::size_t i = 0; i < plan.counts.size(); ++i) exchange.ready(i);
      });
    }
    for (auto& thread : threads) thread.join();
    std::vector<float> expected(plan.elements());
    for (std::size_t i = 0; i < expected.size(); ++i)
      expected[i] = static_cast<float>(3 * (i % 1000) + 3000);
    for (const auto& own : sums) CHECK((own == expected));
  }
}

TEST_CASE("a sum that was never queued is told, not taken from the step before", "[d-40]") {
  Queued queued(TrainingMethod::mg_wfbp);
  queued.exchange.ready(0);
  queued.exchange.ready(1);
  queued.exchange.wait(0);
  // Gradient 2 of the second piece is missing.
  CHECK_THROWS_WITH(queued.exchange.wait(1), ContainsSubstring("has no gradient in this step"));
  // DeAR's second halves begin when every first half is queued.
  Queued halves(TrainingMethod::dear);
  for (std::size_t i = 0; i < 3; ++i) halves.exchange.ready(i);
  CHECK_THROWS_WITH(halves.exchange.wait(0), ContainsSubstring("has no gradient in this step"));
  halves.exchange.ready(3);
  CHECK_NOTHROW(halves.exchange.wait(0));
}

TEST_CASE("the one step that is traced has the GPU's times of every call", "[d-40]") {
  Queued queued(TrainingMethod::mg_wfbp, 2);
  const auto step = [&] {
    queued.exchange.start_step();
    for (std::size_t i = 0; i < 4; ++i) queued.exchange.ready(i);
    for (std::size_t i = 0; i < 4; ++i) queued.exchange.wait(i);
  };
  step();
  CHECK(queued.exchange.take_spans().empty());
  queued.exchange.trace_next();
  queued.log.clear();
  step();
  CHECK(by_lane(queued.log, 2)[1] ==
        Log{"stamp 3", "sum 6+4", "stamp 4", "note 1", "stamp 5", "sum 10+9", "stamp 6", "note 2"});
  queued.log.clear();
  step();
  for (const std::string& line : queued.log) CHECK(line.rfind("stamp", 0) != 0);
  const double before_us = now_us();
  const auto spans = queued.exchange.take_spans();
  const double after_us = now_us();
  REQUIRE(spans.size() == 3);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    CHECK(std::string(spans[i].what) == "reduce");
    CHECK(spans[i].piece == i);
    CHECK(spans[i].lane == (i == 0 ? 0 : 1));
    const auto stamp_us = static_cast<double>(2 * i + 1);
    CHECK(spans[i].start_us >= before_us + stamp_us);
    CHECK(spans[i].start_us <= after_us + stamp_us);
    CHECK(spans[i].end_us - spans[i].start_us > 0);
  }
  CHECK(queued.exchange.take_spans().empty());
  // A piece over all lanes says what each of them carried.
  Queued large(large_plan(TrainingMethod::dear, 2));
  large.exchange.trace_next();
  large.exchange.start_step();
  for (std::size_t i = 0; i < 5; ++i) large.exchange.ready(i);
  const auto halves = large.exchange.take_spans();
  REQUIRE(halves.size() == 2 * (2 + 1 + 1 + 1 + 2));
  CHECK(std::string(halves.front().what) == "reduce-scatter");
  CHECK(std::string(halves.back().what) == "all-gather");
  CHECK(halves[0].bytes + halves[1].bytes == 4 * (3 * largest_whole(2) + 5));
  CHECK(halves[2].bytes == 0);
}

TEST_CASE("queued sums run under the settings of their step, and their times come from the GPU",
          "[e-83]") {
  const ExchangePlan plan = plan_of(TrainingMethod::mg_wfbp);
  std::vector<float> gradients(plan.elements(), 0.0F);
  Log log;
  LoggingCommunicator comm(log, gradients.data(), 0);
  const auto memory = make_host_memory();
  CallSettings settings(comm, plan);
  REQUIRE(settings.keys().size() == 2);  // 24 and 16 bytes, 36 bytes
  CallShape ring;
  ring.algorithm = "ring";
  for (std::size_t key = 0; key < 2; ++key) settings.set_arms(key, {CallShape{}, ring});
  settings.propose({1, 0}, 1);
  QueuedExchange exchange(comm, plan, gradients.data(), *memory, &settings);
  const auto step = [&] {
    log.clear();
    exchange.start_step();
    for (std::size_t i = 0; i < 4; ++i) exchange.ready(i);
    for (std::size_t i = 0; i < 4; ++i) exchange.wait(i);
    exchange.end_step();
  };
  step();
  // The word is spoken before the first gradient; a setting is taken where it changes.
  CHECK(log == Log{"word of 12 bytes to 1",
                   "word of 12 bytes to 2",
                   "choose ring",
                   "follow",
                   "stamp 1",
                   "sum 0+6",
                   "stamp 2",
                   "note 0",
                   "follow",
                   "stamp 3",
                   "sum 6+4",
                   "stamp 4",
                   "note 1",
                   "choose library",
                   "follow",
                   "stamp 5",
                   "sum 10+9",
                   "stamp 6",
                   "note 2",
                   "hold 0",
                   "hold 1",
                   "hold 2"});
  const auto steps = settings.take_steps();
  REQUIRE(steps.size() == 1);
  CHECK(steps[0].arms == std::vector<std::uint32_t>{1, 0});
  // The stand-in's clock goes one on with each stamp.
  CHECK(steps[0].call_us == std::vector<double>{2, 1});
  // Stamps of every step are no trace; who asks for one gets it, once.
  CHECK(exchange.take_spans().empty());
  exchange.trace_next();
  settings.propose({0, 0}, 16);
  step();
  CHECK(exchange.take_spans().size() == 3);
  CHECK(exchange.take_spans().empty());
  CHECK(settings.take_steps().at(0).arms == std::vector<std::uint32_t>{0, 0});
}

TEST_CASE("who waits for queued sums is told that they will never come", "[d-40]") {
  Queued queued(TrainingMethod::mg_wfbp);
  CHECK_THROWS_WITH(queued.exchange.check(), "remote rank has gone");
}

TEST_CASE("what has no queue, servers and ByteScheduler, is not queued", "[d-47]") {
  Log log;
  LoggingCommunicator comm(log, nullptr);
  CHECK(can_be_queued(comm, plan_of(TrainingMethod::wfbp_a2a)));
  CHECK_FALSE(can_be_queued(comm, plan_of(TrainingMethod::bytescheduler_a2a)));
  auto plan = plan_of(TrainingMethod::wfbp_ps);
  plan.servers = 1;
  CHECK_FALSE(can_be_queued(comm, plan));
}
