// A worker's steps, call by call: what it asks of its memory and of the exchange. That weights come
// out right is for the trainers' own tests.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "tests/train/stand_in_learner.hpp"
#include "train/step/worker_step.hpp"
#include "train/torch/put_off.hpp"

using namespace dynamiccl;

namespace {

using Calls = std::vector<std::string>;

/// Host memory that writes down what is asked of it, but its own buffers' making.
class LoggedMemory final : public TensorMemory {
 public:
  explicit LoggedMemory(Calls& calls) : calls_(calls) {}
  [[nodiscard]] bool on_gpu() const override { return false; }
  [[nodiscard]] std::shared_ptr<float> allocate(std::size_t count) override {
    return host_->allocate(count);
  }
  void copy(const float* from, float* to, std::size_t count) override {
    say("copy", count);
    host_->copy(from, to, count);
  }
  void copy_later(const float* from, float* to, std::size_t count) override {
    say("copy later", count);
    host_->copy(from, to, count);
  }
  void flush_copies() override { calls_.emplace_back("flush"); }
  [[nodiscard]] bool copies_wait() const override { return false; }
  void clear(float* at, std::size_t count) override { host_->clear(at, count); }
  void add(float* sum, const float* more, std::size_t count) override {
    host_->add(sum, more, count);
  }
  void update(const Sgd& sgd, float* weight, float* velocity, const float* gradient, float scale,
              std::size_t count) override {
    say("update", count);
    host_->update(sgd, weight, velocity, gradient, scale, count);
  }
  void apply() override { calls_.emplace_back("apply"); }
  void to_host(const float* from, float* host, std::size_t count) override {
    host_->to_host(from, host, count);
  }
  void from_host(const float* host, float* to, std::size_t count) override {
    host_->from_host(host, to, count);
  }
  void complete() override { calls_.emplace_back("complete"); }
  void complete_or_fail(const std::function<void()>& check) override {
    check();
    complete();
  }
  void stamp(std::size_t place) override { host_->stamp(place); }
  [[nodiscard]] double between_us(std::size_t from, std::size_t to) override {
    return host_->between_us(from, to);
  }
  void mark(std::size_t) override {}
  void reached(std::size_t) override {}

 private:
  void say(const char* what, std::size_t count) {
    calls_.push_back(fmt::format("{} {}", what, count));
  }
  Calls& calls_;
  std::unique_ptr<TensorMemory> host_ = make_host_memory();
};

/// Three layers of 1, 2 and 3 weights; gradients come from the last one on.
class ThreeLayers final : public StandInLearner {
 public:
  explicit ThreeLayers(Calls& calls) : calls_(calls), memory_(calls) {
    std::size_t at = 0;
    for (std::size_t count = 1; count <= 3; at += count++)
      parameters_.push_back({weights_.data() + at, count, static_cast<int>(count) - 1});
  }
  [[nodiscard]] int stages() const override { return 3; }
  [[nodiscard]] TensorMemory& memory() override { return memory_; }
  void backward() override {
    for (std::size_t i = parameters_.size(); i-- > 0;) callback_(i, gradient_.data());
    calls_.emplace_back("backward is over");
  }

 private:
  Calls& calls_;
  LoggedMemory memory_;
  std::vector<float> weights_ = std::vector<float>(6, 1.0F);
  std::vector<float> gradient_ = std::vector<float>(3, 2.0F);
};

/// Sums that are there as soon as they are queued.
class QueueingExchange : public StepExchange {
 public:
  void start_step() override {}
  void ready(std::size_t gradient) override { apply_(gradient, gradient + 1); }
  bool apply_by(const Apply& apply) override {
    apply_ = apply;
    return true;
  }
  void wait(std::size_t) override {}
  void flush() override {}
  std::optional<double> take_busy_us() override { return std::nullopt; }
  std::vector<Span> take_spans() override { return {}; }
  [[nodiscard]] std::uint64_t sent_bytes() const override { return 0; }
  [[nodiscard]] std::size_t extra_bytes() const override { return 0; }

 private:
  Apply apply_;
};

TrainingSpec spec_of(TrainingMethod method, double pace_ms) {
  TrainingSpec spec;
  spec.pace = pace_ms;
  spec.method = method;
  spec.model = TrainingModel::mlp;
  spec.batch = 1;
  spec.samples = 8;
  return spec;
}

struct Trained {
  explicit Trained(TrainingMethod method, double pace_ms = 0)
      : spec(spec_of(method, pace_ms)),
        data(open_dataset(spec)),
        learner(calls),
        worker(spec, learner, *data, 0, 1, 1) {
    worker.set_order(worker.observe_order());
    calls.clear();
  }
  /// Calls of one kind, in their order, and where the backward pass ended.
  [[nodiscard]] Calls of(const std::vector<std::string>& kinds) const {
    Calls found;
    for (const auto& call : calls)
      for (const auto& kind : kinds)
        if (call.starts_with(kind)) found.push_back(call);
    return found;
  }
  Calls calls;
  TrainingSpec spec;
  std::unique_ptr<Dataset> data;
  ThreeLayers learner;
  TrainingWorker worker;
};

}  // namespace

TEST_CASE("queued updates are applied together once a step, unless the next pass waits for each",
          "[d-40]") {
  QueueingExchange exchange;
  Trained merged(TrainingMethod::mg_wfbp);
  merged.worker.begin(exchange);
  for (int step = 0; step < 2; ++step) {
    merged.calls.clear();
    merged.worker.step(exchange, false);
    // The one behind the backward pass finds nothing: the last message brought all.
    CHECK(merged.of({"update", "apply", "backward"}) ==
          Calls{"update 3", "update 2", "update 1", "apply", "backward is over", "apply"});
  }
  Trained crossing(TrainingMethod::dear);
  crossing.worker.begin(exchange);
  crossing.worker.step(exchange, true);
  CHECK(crossing.of({"update", "apply", "backward"}) ==
        Calls{"update 3", "apply", "update 2", "apply", "update 1", "apply", "backward is over"});
}

TEST_CASE("what goes as one message is told behind the backward pass, on the host", "[a-13]") {
  class Told final : public QueueingExchange {
   public:
    explicit Told(Calls& calls) : calls_(calls) {}
    void ready(std::size_t gradient) override {
      calls_.push_back(fmt::format("ready {}", gradient));
      QueueingExchange::ready(gradient);
    }

   private:
    Calls& calls_;
  };
  // The thread that sends would take the core from what is left of the pass.
  const auto told = [](TrainingMethod method) {
    Trained trained(method);
    Told exchange(trained.calls);
    trained.worker.begin(exchange);
    trained.worker.step(exchange, false);
    return trained.of({"ready", "backward"});
  };
  const Calls behind{"backward is over", "ready 0", "ready 1", "ready 2"};
  CHECK(told(TrainingMethod::bsp_a2a) == behind);
  CHECK(told(TrainingMethod::bsp_ps) == behind);
  CHECK(told(TrainingMethod::wfbp_a2a) ==
        Calls{"ready 0", "ready 1", "ready 2", "backward is over"});
}

TEST_CASE("a worker that is slowed down waits for no GPU without a look at who may have died",
          "[safety]") {
  class Watched final : public QueueingExchange {
   public:
    explicit Watched(Calls& calls) : calls_(calls) {}
    void check() override { calls_.emplace_back("check"); }

   private:
    Calls& calls_;
  };
  Trained trained(TrainingMethod::wfbp_a2a, 1);
  Watched exchange(trained.calls);
  trained.worker.begin(exchange);
  trained.calls.clear();
  trained.worker.step(exchange, false);
  // Behind the forward pass, behind the backward pass and at the step's end.
  CHECK(trained.of({"check", "complete"}) ==
        Calls{"check", "complete", "check", "complete", "check", "complete"});
}

TEST_CASE("a step alone copies gradients as real steps do, one at a time where each is timed",
          "[d-40]") {
  Trained trained(TrainingMethod::mg_wfbp);
  trained.worker.step_alone(nullptr);
  const Calls copies{"copy later 3", "copy later 2", "copy later 1", "backward is over", "flush"};
  CHECK(trained.of({"copy", "flush", "backward"}) == copies);
  QueueingExchange exchange;
  trained.worker.begin(exchange);
  trained.calls.clear();
  trained.worker.step(exchange, false);
  CHECK(trained.of({"copy", "backward"}) == Calls(copies.begin(), copies.end() - 1));
  trained.calls.clear();
  StepProfile profile;
  profile.gradients.resize(3);
  profile.stage_forward_us.resize(3);
  trained.worker.step_alone(&profile);
  CHECK(trained.of({"copy"}) == Calls{"copy 3", "copy 2", "copy 1"});
}

TEST_CASE("a step whose sums will never come ends with what the library says", "[d-40]") {
  class Failing final : public QueueingExchange {
   public:
    void check() override { throw Error(ErrorKind::environment, "a rank is gone"); }
  };
  Failing exchange;
  Trained trained(TrainingMethod::mg_wfbp);
  trained.worker.begin(exchange);
  CHECK_THROWS_WITH(trained.worker.step(exchange, false), "a rank is gone");
}

TEST_CASE("weights of a step whose sums will never come are not waited for", "[safety]") {
  class Failing final : public QueueingExchange {
   public:
    void check() override { throw Error(ErrorKind::environment, "a rank is gone"); }
  };
  Failing exchange;
  Trained trained(TrainingMethod::dear);
  trained.worker.begin(exchange);
  std::vector<std::vector<float>> kept;
  {
    const auto keeping = trained.worker.keep_weights(kept);
    CHECK_THROWS_WITH(trained.worker.step(exchange, true), "a rank is gone");
    CHECK(kept.empty());
    CHECK(trained.of({"backward"}).empty());
    trained.worker.step_by_itself(true);
    CHECK(kept.size() == 1);
  }
  trained.worker.step_by_itself(true);
  CHECK(kept.size() == 1);
}

TEST_CASE("who waits for what was put off waits for what it was done with") {
  PutOff pieces;
  for (int step = 0; step < 2; ++step) {
    pieces.put_off(0);
    pieces.put_off(1);
    pieces.done(2);
    pieces.done(3);
    CHECK(pieces.done_with(0) == 2);
    CHECK(pieces.done_with(1) == 2);
    CHECK(pieces.done_with(2) == 2);
    CHECK(pieces.done_with(3) == 3);
    pieces.put_off(1);
    CHECK_THROWS(pieces.done_with(1));
    CHECK(pieces.done_with(0) == 2);
    pieces.done(1);
  }
}

TEST_CASE("LARS makes a layer's step a part of its weights' length, whatever its gradient's is",
          "[d-81]") {
  const std::vector<float> weights{3, 0, 4};
  const std::vector<float> sums{0, 8, 6};
  // A sum of two workers; its mean of length 5 becomes one of 0.01 * 5.
  const float scale = lars_scale(0.01, weights.data(), sums.data(), 0.5F, 3);
  CHECK(std::abs(scale - 0.005F) < 1e-9F);
  const std::vector<float> thousandfold{0, 8000, 6000};
  CHECK(std::abs(lars_scale(0.01, weights.data(), thousandfold.data(), 0.5F, 3) - 0.000005F) <
        1e-12F);
  const std::vector<float> nothing(3, 0.0F);
  CHECK(lars_scale(0.01, weights.data(), nothing.data(), 0.5F, 3) == 0.5F);
  CHECK(lars_scale(0.01, nothing.data(), sums.data(), 0.5F, 3) == 0.5F);
}
