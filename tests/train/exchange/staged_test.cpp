// Exchanges of a GPU's gradients by way of host memory, with a memory that tells its own from
// others'.
#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "tests/train/thread_network.hpp"
#include "train/exchange/gradient_exchange.hpp"
#include "train/exchange/gradient_server.hpp"
#include "train/step/tensor_memory.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;

namespace {

/// Host memory behind the interface of a GPU's.
class FakeGpu final : public TensorMemory {
 public:
  [[nodiscard]] bool on_gpu() const override { return true; }
  [[nodiscard]] std::shared_ptr<float> allocate(std::size_t count) override {
    auto memory = make_host_memory()->allocate(count);
    ranges_.push_back({memory.get(), memory.get() + count});
    return memory;
  }
  [[nodiscard]] std::shared_ptr<float> allocate_host(std::size_t count) override {
    auto memory = make_host_memory()->allocate(count);
    most_on_host = std::max(most_on_host, on_host_ += count);
    return {memory.get(), [this, memory, count](float*) { on_host_ -= count; }};
  }
  std::size_t most_on_host = 0;  ///< floats that were held at once
  /// Floats of its own that were ever made.
  [[nodiscard]] std::size_t all() const {
    std::size_t sum = 0;
    for (const auto& [first, last] : ranges_) sum += static_cast<std::size_t>(last - first);
    return sum;
  }
  [[nodiscard]] bool owns(const void* at) const {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [&](const auto& range) { return at >= range.first && at < range.second; });
  }
  void to_host(const float* from, float* host, std::size_t count) override {
    check(from, host);
    std::copy_n(from, count, host);
  }
  void from_host(const float* host, float* to, std::size_t count) override {
    check(to, host);
    std::copy_n(host, count, to);
  }
  /// As late as can be: who does not wait reads what was there before.
  void start_to_host(const float* from, float* host, std::size_t count,
                     std::size_t number) override {
    check(from, host);
    start(number, [=] { std::copy_n(from, count, host); });
  }
  void start_from_host(const float* host, float* to, std::size_t count,
                       std::size_t number) override {
    check(to, host);
    start(number, [=] { std::copy_n(host, count, to); });
  }
  void copied(std::size_t number) override {
    const auto last = std::find_if(started_.rbegin(), started_.rend(),
                                   [&](const auto& copy) { return copy.first == number; });
    for (auto copy = started_.begin(); copy != last.base(); ++copy) copy->second();
    started_.erase(started_.begin(), last.base());
  }
  std::size_t most_started = 0;  ///< copies under way at once
  void leave_computation() override { beside_ = std::this_thread::get_id(); }
  void reached(std::size_t number) override {
    if (!has_reached(number)) throw Error(ErrorKind::bug, "waits for what comes last");
    reached_.insert(number);
  }
  [[nodiscard]] bool has_reached(std::size_t number) override { return number < computed; }
  [[nodiscard]] std::size_t awaited() const { return reached_.size(); }
  /// Gradients that are computed, of those that were reported ready.
  std::atomic<std::size_t> computed = ~std::size_t{0};

  void copy(const float*, float*, std::size_t) override {}
  void copy_later(const float*, float*, std::size_t) override {}
  void flush_copies() override {}
  [[nodiscard]] bool copies_wait() const override { return false; }
  void clear(float*, std::size_t) override {}
  void add(float*, const float*, std::size_t) override {}
  void update(const Sgd&, float*, float*, const float*, float, std::size_t) override {}
  void apply() override {}
  void complete() override {}
  void stamp(std::size_t) override {}
  [[nodiscard]] double between_us(std::size_t, std::size_t) override { return 0; }
  void mark(std::size_t) override {}

 private:
  void start(std::size_t number, std::function<void()> copy) {
    started_.emplace_back(number, std::move(copy));
    most_started = std::max(most_started, started_.size());
  }
  void check(const float* own, const float* host) const {
    if (!owns(own) || owns(host)) throw Error(ErrorKind::bug, "copied the wrong way");
    if (beside_ != std::this_thread::get_id())
      throw Error(ErrorKind::bug, "copied behind the computation");
  }
  std::vector<std::pair<const float*, const float*>> ranges_;
  std::vector<std::pair<std::size_t, std::function<void()>>> started_;
  std::set<std::size_t> reached_;
  std::size_t on_host_ = 0;
  std::thread::id beside_;
};

constexpr int kSteps = 3;

struct Way {
  TrainingMethod method;
  int servers;
  Packing packing;
  bool by_host = false;   ///< as it was measured to be faster
  bool own_ring = false;  ///< likewise
  /// Elements of the second gradient.
  std::size_t large = 70'000;
  bool colocated = false;
};

ExchangePlan plan_of(const Way& way) {
  ExchangePlan plan;
  plan.method = way.method;
  plan.servers = way.servers;
  plan.colocated = way.colocated;
  plan.packing = way.packing;
  plan.path.by_host = way.by_host;
  plan.path.own_ring = way.own_ring;
  plan.counts = {5, way.large, 1, 40'000};
  // The largest gradient goes in two parts where the method cuts.
  const bool cuts = way.method == TrainingMethod::bytescheduler_ps ||
                    way.method == TrainingMethod::bytescheduler_a2a || way.servers > 1;
  plan.pieces = cut(plan.counts, each_alone(plan.counts.size()), cuts ? 50'000 : way.large);
  plan.credit_bytes = 60'000 * sizeof(float);
  if (way.servers > 0) assign_servers(plan.pieces, way.servers);
  return plan;
}

float value_of(int worker, int step, std::size_t i) {
  return static_cast<float>((worker + 1) * static_cast<int>(i % 97) + step) * 1e-3F;
}

/// One worker's steps. @returns what went wrong, "" when nothing did
std::string train(Network& network, const ExchangePlan& plan, int rank, int ranks) {
  FakeGpu gpu;
  const std::size_t count = plan.elements();
  const auto gradients = gpu.allocate(count);
  ThreadCommunicator comm(network, rank, ranks);
  comm.look = [&](const void* data) {
    if (gpu.owns(data)) throw Error(ErrorKind::bug, "the library was given GPU memory");
  };
  GradientExchange exchange(comm, plan, gradients.get(), gradients.get(), &gpu);
  // What a ring adds lies beside its place first: a part of the largest piece, or some frames.
  const std::size_t frames = plan.packing == Packing::none ? 0 : 9 * (std::size_t{160} << 10);
  // A colocated server of two workers has a slot for the other one.
  const std::size_t most = plan.servers == 0 ? count * sizeof(float) + frames
                           : plan.colocated  ? plan.shard_bytes(rank)
                                             : 0;
  if (exchange.extra_bytes() > most) return "takes more memory than it may";
  if (plan.path.own_ring && exchange.extra_bytes() == 0) return "leaves the sums to the library";
  for (int step = 0; step < kSteps; ++step) {
    for (std::size_t i = 0; i < count; ++i)
      gradients.get()[i] = value_of(rank - plan.first_worker(), step, i);
    exchange.start_step();
    for (std::size_t i = 0; i < plan.counts.size(); ++i) exchange.ready(i);
    for (std::size_t i = 0; i < plan.counts.size(); ++i) exchange.wait(i);
    exchange.flush();
    for (std::size_t i = 0; i < count; ++i)
      if (gradients.get()[i] != value_of(0, step, i) + value_of(1, step, i))
        return "wrong sum of element " + std::to_string(i);
  }
  // Of a large piece one part is copied while another is summed.
  if (count > 2'000'000 && gpu.most_started < 3) return "copies and sums by turns";
  if (gpu.awaited() != plan.counts.size()) return "a gradient was not waited for";
  if (gpu.most_on_host != count || gpu.all() != count)
    return "holds more than a copy in each memory";
  return exchange.staging_bytes() == count * sizeof(float) ? "" : "staging is miscounted";
}

/// Whether that came to be before a deadline.
template <class F>
bool comes(F&& there) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!there() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  return there();
}

class CountingCommunicator final : public ThreadCommunicator {
 public:
  using ThreadCommunicator::ThreadCommunicator;
  void progress() override { ++progressed; }
  std::atomic<int> progressed = 0;
};

}  // namespace

TEST_CASE("a GPU's gradients are summed by way of host memory", "[d-03][d-40]") {
  using M = TrainingMethod;
  const auto way = GENERATE(
      Way{M::bsp_ps, 1, Packing::none}, Way{M::wfbp_ps, 1, Packing::none},
      Way{M::wfbp_ps, 2, Packing::none}, Way{M::bytescheduler_ps, 1, Packing::none},
      Way{M::bytescheduler_ps, 2, Packing::none},
      Way{M::bsp_ps, 2, Packing::none, false, false, 70'000, true},
      Way{M::wfbp_ps, 1, Packing::none, false, false, 70'000, true},
      Way{M::bytescheduler_ps, 2, Packing::none, false, false, 70'000, true},
      Way{M::dear, 0, Packing::none}, Way{M::dear, 0, Packing::exponents},
      Way{M::mg_wfbp, 0, Packing::exponents}, Way{M::bytescheduler_a2a, 0, Packing::exponents},
      Way{M::bsp_a2a, 0, Packing::none, true}, Way{M::mg_wfbp, 0, Packing::none, true},
      Way{M::bytescheduler_a2a, 0, Packing::none, true},
      Way{M::mg_wfbp, 0, Packing::none, true, true},
      Way{M::mg_wfbp, 0, Packing::none, true, false, 2'500'000},
      Way{M::mg_wfbp, 0, Packing::none, true, true, 2'500'000},
      Way{M::mg_wfbp, 0, Packing::exponents, false, false, 2'500'000},
      Way{M::dear, 0, Packing::none, false, false, 1'500'000},
      Way{M::bytescheduler_a2a, 0, Packing::none, true, true});
  INFO(name_of(way.method) << ", " << way.servers << " servers, " << name_of(way.packing));
  const ExchangePlan plan = plan_of(way);
  const int ranks = plan.first_worker() + 2;
  Network network;
  std::vector<std::string> problems(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto& problem = problems[static_cast<std::size_t>(rank)];
      try {
        if (rank >= plan.first_worker()) {
          problem = train(network, plan, rank, ranks);
        } else {
          ThreadCommunicator comm(network, rank, ranks);
          GradientServer(comm, plan).serve(kSteps);
        }
      } catch (const std::exception& error) {
        problem = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& problem : problems) CHECK(problem.empty());
}

namespace {

/// A library that works on GPUs and is given host memory alone.
class HostFedCommunicator final : public ThreadCommunicator {
 public:
  using ThreadCommunicator::ThreadCommunicator;
  [[nodiscard]] bool works_on_gpu() const override { return true; }
};

/// What a worker's encoded steps brought, of gradients in this memory.
/// @param gpu nullptr: in the host's
std::vector<float> coded_steps(Communicator& comm, const ExchangePlan& plan, FakeGpu* gpu) {
  const std::size_t count = plan.elements();
  const auto gradients =
      gpu == nullptr ? make_host_memory()->allocate(count) : gpu->allocate(count);
  GradientExchange exchange(comm, plan, gradients.get(), gradients.get(), gpu);
  std::vector<float> sums;
  for (int step = 0; step < kSteps; ++step) {
    for (std::size_t i = 0; i < count; ++i)
      gradients.get()[i] = value_of(comm.rank() - plan.first_worker(), step, i) - 0.05F;
    exchange.start_step();
    for (std::size_t i = 0; i < plan.counts.size(); ++i) exchange.ready(i);
    for (std::size_t i = 0; i < plan.counts.size(); ++i) exchange.wait(i);
    exchange.flush();
    sums.insert(sums.end(), gradients.get(), gradients.get() + count);
  }
  return sums;
}

/// Every rank's, servers' empty, of all workers in GPUs' memory or all in the host's.
std::vector<std::vector<float>> coded_sums(const ExchangePlan& plan, bool on_gpus) {
  const int ranks = plan.first_worker() + 2;
  Network network;
  std::vector<std::vector<float>> sums(static_cast<std::size_t>(ranks));
  std::vector<std::string> problems(sums.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      try {
        HostFedCommunicator comm(network, rank, ranks);
        FakeGpu gpu;
        comm.look = [&](const void* data) {
          if (gpu.owns(data)) throw Error(ErrorKind::bug, "the library was given GPU memory");
        };
        if (rank < plan.first_worker())
          GradientServer(comm, plan).serve(kSteps);
        else
          sums[at] = coded_steps(comm, plan, on_gpus ? &gpu : nullptr);
      } catch (const std::exception& error) {
        problems[at] = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& problem : problems) CHECK(problem == "");
  return sums;
}

}  // namespace

TEST_CASE("what the host encodes of GPUs' gradients is what it encodes of its own",
          "[d-73][d-82]") {
  using M = TrainingMethod;
  const auto way =
      GENERATE(Way{M::bsp_a2a, 0, Packing::none}, Way{M::wfbp_a2a, 0, Packing::none},
               Way{M::mg_wfbp, 0, Packing::none}, Way{M::bytescheduler_a2a, 0, Packing::none},
               Way{M::bsp_ps, 1, Packing::none}, Way{M::wfbp_ps, 2, Packing::none},
               Way{M::bytescheduler_ps, 1, Packing::none});
  const auto codec = GENERATE(Codec::stc, Codec::sbc, Codec::three_lc, Codec::threshold,
                              Codec::adacomp, Codec::qsgd_adaptive);
  INFO(name_of(way.method) << ", " << way.servers << " servers, " << name_of(codec));
  ExchangePlan plan = plan_of(way);
  TrainingSpec spec;
  spec.compression = codec;
  spec.density = 0.05;
  plan.codec = codec_settings(spec);
  plan.seed = 7;
  // What is encoded is not cut.
  plan.pieces = cut(plan.counts, each_alone(plan.counts.size()), plan.elements());
  if (way.servers > 0) assign_servers(plan.pieces, way.servers);
  const auto by_host = coded_sums(plan, false);
  const auto staged = coded_sums(plan, true);
  CHECK(staged == by_host);
  // Workers agree, and something came.
  CHECK(staged.back() == staged[staged.size() - 2]);
  CHECK(
      std::any_of(staged.back().begin(), staged.back().end(), [](float sum) { return sum != 0; }));
}

TEST_CASE("ByteScheduler sends what a GPU has computed while the rest is only queued", "[d-03]") {
  ExchangePlan plan = plan_of({TrainingMethod::bytescheduler_a2a, 0, Packing::none});
  const std::size_t count = plan.counts.size();
  plan.pieces = cut(plan.counts, each_alone(count), 70'000);
  plan.credit_bytes = 1;
  Network network;
  FakeGpu gpu;
  gpu.computed = 0;
  const auto gradients = gpu.allocate(plan.elements());
  ThreadCommunicator comm(network, 0, 1);
  GradientExchange exchange(comm, plan, gradients.get(), gradients.get(), &gpu);
  std::size_t summed = 0;
  const auto is_summed = [&](std::size_t piece) {
    static_cast<void>(exchange.idle());  // throws what went wrong
    for (const Span& span : exchange.take_spans())
      summed += std::string_view(span.what) == "reduce" ? 1 : 0;
    return summed > piece;
  };
  exchange.start_step();
  for (std::size_t i = 0; i < count; ++i) exchange.ready(i);
  for (std::size_t i = 0; i < count; ++i) {
    CHECK(summed == i);
    gpu.computed = i + 1;
    REQUIRE(comes([&] { return is_summed(i); }));
  }
  exchange.flush();
}

TEST_CASE("pushed gradients move on while the GPU computes the next", "[d-03]") {
  const ExchangePlan plan = plan_of({TrainingMethod::wfbp_ps, 1, Packing::none});
  Network network;
  std::string problem;
  std::thread server([&] {
    try {
      ThreadCommunicator comm(network, 0, 2);
      GradientServer(comm, plan).serve(1);
    } catch (const std::exception& error) {
      problem = error.what();
    }
  });
  FakeGpu gpu;
  gpu.computed = 1;
  const auto gradients = gpu.allocate(plan.elements());
  CountingCommunicator comm(network, 1, 2);
  GradientExchange exchange(comm, plan, gradients.get(), gradients.get(), &gpu);
  exchange.start_step();
  for (std::size_t i = 0; i < plan.counts.size(); ++i) exchange.ready(i);
  CHECK(comes([&] { return comm.progressed > 0; }));
  gpu.computed = plan.counts.size();
  CHECK_NOTHROW(exchange.flush());
  server.join();
  CHECK(problem.empty());
}
