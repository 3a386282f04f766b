// Who is taken for lost, and what the library may still use when that ends a cell.
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <thread>

#include "tests/train/idle_communicator.hpp"
#include "tests/train/stand_in_learner.hpp"
#include "train/run/silence.hpp"
#include "train/synchronise/asynchronous_training.hpp"
#include "train/synchronise/lazy_gradients.hpp"
#include "train/synchronise/round_driver.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr std::size_t kMany = 1U << 20;  // of their own pages
constexpr Micros kShort{50'000};

ExchangePlan plan_of(TrainingMethod method) {
  ExchangePlan plan;
  plan.method = method;
  plan.servers = method_row(method).sums == SumPlace::server ? 1 : 0;
  plan.counts = {kMany};
  plan.pieces = {{0, kMany, 0, 1, 0}};
  return plan;
}

/// Messages of other ranks that came before anybody asked; all else is under way for ever.
class Queued : public IdleCommunicator {
 public:
  explicit Queued(int rank, std::deque<int> senders)
      : IdleCommunicator(rank, 3), senders_(std::move(senders)) {}
  Request isend(const void* data, std::size_t bytes, int, int) override {
    return started(data, bytes);
  }
  Request irecv(void* data, std::size_t bytes, int, int) override {
    if (bytes == sizeof kYes) std::memcpy(data, &kYes, bytes);  // a flag comes at once
    return started(data, bytes);
  }
  void wait_within(Request request, int peer, Micros limit) override {
    if (silent && request == kLarge) refuse_silence({peer}, limit);
  }
  int receive_any(void* data, std::size_t, const std::vector<int>& from, int,
                  Micros limit) override {
    for (auto each = senders_.begin(); each != senders_.end(); ++each) {
      if (std::find(from.begin(), from.end(), *each) == from.end()) continue;
      const int rank = *each;
      senders_.erase(each);
      const PushHead head{static_cast<std::uint32_t>(rank - 1), clocks_[rank]++, 0, 0, told_bytes};
      std::memcpy(data, &head, sizeof head);
      // The rank has other things to do for longer than anybody may be silent.
      std::this_thread::sleep_for(std::chrono::microseconds(static_cast<long>(busy.count())));
      return rank;
    }
    refuse_silence(from, limit);
  }
  /// Large buffers that were given to the library and are no longer there.
  [[nodiscard]] int gone() const {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    int count = 0;
    for (const void* data : under_way_) {
      const auto at = reinterpret_cast<std::uintptr_t>(data) / page * page;
      unsigned char held = 0;
      count += mincore(reinterpret_cast<void*>(at), page, &held) == 0 ? 0 : 1;
    }
    return count;
  }
  [[nodiscard]] std::size_t started_large() const { return under_way_.size(); }
  bool silent = false;
  Micros busy{0};
  std::uint64_t told_bytes = 0;  ///< of each encoded gradient

 private:
  static constexpr std::uint32_t kYes = 1;
  static constexpr Request kLarge{1};
  Request started(const void* data, std::size_t bytes) {
    if (bytes < kMany) return {};
    under_way_.push_back(data);
    return kLarge;
  }
  std::deque<int> senders_;
  std::map<int, std::uint32_t> clocks_;
  std::vector<const void*> under_way_;
};

TrainingSpec served(Synchronisation how) {
  TrainingSpec spec;
  spec.method = TrainingMethod::bsp_ps;
  spec.synchronisation = how;
  return spec;
}

/// One layer of many weights.
class OneLayer final : public StandInLearner {
 public:
  OneLayer() : weights_(kMany), gradient_(kMany) {
    parameters_.push_back({weights_.data(), kMany, 0});
  }
  [[nodiscard]] int stages() const override { return 1; }
  [[nodiscard]] TensorMemory& memory() override { return *memory_; }
  void backward() override { callback_(0, gradient_.data()); }

 private:
  std::unique_ptr<TensorMemory> memory_ = make_host_memory();
  std::vector<float> weights_;
  std::vector<float> gradient_;
};

}  // namespace

TEST_CASE("a worker whose message has come is not taken for lost", "[d-13][d-14]") {
  const auto plan = plan_of(TrainingMethod::bsp_ps);
  Queued comm(0, {1, 2});
  comm.busy = Micros(2 * kShort.count());
  UpdateServer server(comm, plan, served(Synchronisation::asp), kShort);
  server.start();
  CHECK(server.serve(1).size() == 1);
  CHECK(server.log().size() == 4);  // each was applied and told that the phase is over
}

TEST_CASE("a worker that is silent while others go on is named", "[d-13][d-14]") {
  const auto plan = plan_of(TrainingMethod::bsp_ps);
  Queued comm(0, {1, 1, 1, 1, 1, 1, 1, 1});
  comm.busy = Micros(2 * kShort.count());
  UpdateServer server(comm, plan, served(Synchronisation::asp), kShort);
  server.start();
  CHECK_THROWS_WITH(server.serve(9), ContainsSubstring("none of the ranks 2 has sent"));
}

TEST_CASE("nobody is taken for lost in the time of a slow worker's rounds, or of a slow link",
          "[d-13][d-15]") {
  const Micros step{1e6};
  TrainingSpec spec;
  spec.method = TrainingMethod::bsp_a2a;
  spec.synchronisation = Synchronisation::local;
  spec.local_steps = 100;
  spec.slow_factor = 3;
  // Ten times as slow as its profile said.
  CHECK(longest_silence(spec, 2, step).count() > 10 * 100 * 3 * step.count());
  CHECK(longest_silence(spec, 2, step).count() >= 30e6);
  // The gradients of four workers by 10 Mbit/s.
  spec.model = TrainingModel::resnet18;
  CHECK(longest_silence(spec, 4, Micros(0)).count() > 4 * 44.7e6 / 1.25);
  // A server waits until each worker has done the rounds of all.
  spec.oracle = 8;
  CHECK(longest_wait(spec, 16, step).count() > 8 * 16 * 100 * 3 * step.count());
}

TEST_CASE("how long silence is borne is a number of seconds", "[d-13]") {
  const TrainingSpec spec;
  const auto borne = [&](const char* told) {
    setenv("DYNAMICCL_SILENCE_S", told, 1);
    return longest_silence(spec, 2, Micros(0)).count();
  };
  CHECK(borne("60") - borne("2") == 58e6);
  CHECK(borne("") - borne("30") == 0);
  for (const char* wrong : {"5m", "inf", "nan", "-1", "0"})
    CHECK_THROWS_WITH(borne(wrong), ContainsSubstring("no number of seconds"));
  unsetenv("DYNAMICCL_SILENCE_S");
}

TEST_CASE("a server that does not answer is named", "[d-13][d-14]") {
  const auto plan = plan_of(TrainingMethod::bsp_ps);
  auto spec = served(Synchronisation::ssp);
  spec.batch = 1;
  spec.samples = 8;
  const auto data = open_dataset(spec);
  OneLayer learner;
  TrainingWorker worker(spec, learner, *data, 1, 2, 1);
  worker.set_order({0});
  Queued comm(2, {});
  comm.silent = true;
  const auto steps = make_outliving<UpdateWorker>(comm, plan, spec, worker, kShort);
  steps->start();
  CHECK_THROWS_WITH(steps->work(), ContainsSubstring("none of the ranks 0 has sent"));
}

TEST_CASE("a server makes no more room than an encoded gradient can need", "[d-91]") {
  auto plan = plan_of(TrainingMethod::bsp_ps);
  plan.codec.codec = Codec::onebit;
  auto spec = served(Synchronisation::asp);
  spec.compression = Codec::onebit;
  const std::uint64_t limit = MessageDecoder(plan).frame_limit(0);
  const auto serve = [&](std::uint64_t told_bytes) {
    Queued comm(0, {1, 2});
    comm.told_bytes = told_bytes;
    UpdateServer server(comm, plan, spec, kShort);
    server.start();
    return server.serve(1).size();
  };
  CHECK(serve(limit) == 1);
  for (const std::uint64_t bytes : {limit + 1, (std::uint64_t{1} << 32) + limit})
    CHECK_THROWS_WITH(serve(bytes), ContainsSubstring("rank 1 tells of an encoded gradient of " +
                                                      std::to_string(bytes) + " bytes"));
}

TEST_CASE("buffers of messages under way outlive the error that ends their cell", "[d-13][d-06]") {
  SECTION("of a server that answers one by one") {
    const auto plan = plan_of(TrainingMethod::bsp_ps);
    Queued comm(0, {1});
    const auto serve = [&] {
      AsynchronousTraining training(comm, plan, served(Synchronisation::asp), nullptr, kShort);
      training.start();
      training.run(2, 0);
    };
    CHECK_THROWS_AS(serve(), SilenceError);
    CHECK(comm.started_large() >= 3);  // weights, a gradient, an answer
    CHECK(comm.gone() == 0);
  }
  SECTION("of a server that keeps gradients") {
    const auto plan = plan_of(TrainingMethod::bsp_ps);
    Queued comm(0, {});
    comm.silent = true;
    const auto serve = [&] { make_lazy_server(comm, plan, kShort)->serve(1); };
    CHECK_THROWS_AS(serve(), SilenceError);
    CHECK(comm.started_large() == 2);  // both workers' gradients
    CHECK(comm.gone() == 0);
  }
  SECTION("of neighbours") {
    const auto plan = plan_of(TrainingMethod::d_psgd);
    TrainingSpec spec;
    spec.method = TrainingMethod::d_psgd;
    spec.batch = 1;
    spec.samples = 8;
    const auto data = open_dataset(spec);
    OneLayer learner;
    TrainingWorker worker(spec, learner, *data, 0, 3, 1);
    worker.set_order({0});
    Queued comm(0, {});
    comm.silent = true;
    const auto average = [&] { make_round_driver(comm, plan, spec, worker, kShort)->step(); };
    CHECK_THROWS_AS(average(), SilenceError);
    CHECK(comm.started_large() >= 4);  // to and from two neighbours
    CHECK(comm.gone() == 0);
  }
}

TEST_CASE("what momentum adds to the weights' movements makes no gradient less new", "[d-21]") {
  TrainingSpec spec;
  for (const double momentum : {0.0, 0.9}) {
    spec.momentum = momentum;
    LazyRule rule(spec);
    // Of one gradient of length 1, over and over.
    const auto velocity = static_cast<float>(1 / (1 - momentum));
    rule.moved(&velocity, 1);
    const float like = 1.5F;
    const float unlike = -0.5F;
    CHECK_FALSE(rule.sends(&like, {1.0F}));
    CHECK(rule.sends(&unlike, {1.0F}));
  }
}
