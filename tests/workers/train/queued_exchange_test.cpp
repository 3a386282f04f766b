// What is queued, in which order and behind what: the calls of one rank of three, written down.
// That their sums are right is for the trainers' own tests, on GPUs.
#include <fmt/format.h>
#include <catch2/catch_test_macros.hpp>

#include "tests/workers/train/idle_communicator.hpp"
#include "workers/train/exchange/queued_exchange.hpp"

using namespace dynamiccl;
using dynamiccl::testing::IdleCommunicator;

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
  void hold_back(void* /*stream*/, std::size_t number) override {
    log_.push_back(fmt::format("hold {}", number));
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
  LoggingCommunicator(Log& log, const float* base)
      : IdleCommunicator(1, 3), log_(log), base_(base), queue_(log) {}
  void allreduce(const void* in, void* out, std::size_t count, DataType) override {
    CHECK(in == out);
    say("sum", in, count);
  }
  void allgather(const void* in, void* out, std::size_t count, DataType) override {
    CHECK(place(in) == place(out) + count);
    say("gather", out, 3 * count);
  }
  void reduce_scatter(const void* in, void* out, std::size_t count, DataType) override {
    CHECK(place(out) == place(in) + count);
    say("scatter", in, 3 * count);
  }
  [[nodiscard]] GpuQueue* queue() override { return &queue_; }

 private:
  [[nodiscard]] std::size_t place(const void* at) const {
    return static_cast<std::size_t>(static_cast<const float*>(at) - base_);
  }
  void say(const char* what, const void* at, std::size_t count) {
    log_.push_back(fmt::format("{} {}+{}", what, place(at), count));
  }

  Log& log_;
  const float* base_;
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

struct Queued {
  explicit Queued(TrainingMethod method, std::size_t lanes = 1)
      : comm(log, gradients.data()),
        memory(make_host_memory()),
        exchange(comm, plan_of(method, lanes), gradients.data(), *memory) {
    exchange.start_step();
  }
  Log log;
  std::vector<float> gradients = std::vector<float>(19, 0.0F);
  LoggingCommunicator comm;
  std::unique_ptr<TensorMemory> memory;
  QueuedExchange exchange;
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

TEST_CASE("what has no queue, servers and ByteScheduler, is not queued", "[d-47]") {
  Log log;
  LoggingCommunicator comm(log, nullptr);
  CHECK(can_be_queued(comm, plan_of(TrainingMethod::wfbp_a2a)));
  CHECK_FALSE(can_be_queued(comm, plan_of(TrainingMethod::bytescheduler_a2a)));
  auto plan = plan_of(TrainingMethod::wfbp_ps);
  plan.servers = 1;
  CHECK_FALSE(can_be_queued(comm, plan));
}
