// A GPU's steps by the GPU's clock: the parts of each, and the timeline of the one that is kept.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "tests/train/paced_gpu.hpp"
#include "train/exchange/queued_exchange.hpp"
#include "train/step/worker_step.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::WithinAbs;

namespace {

/// Two gradients, each a message of its own.
struct QueuedStep {
  explicit QueuedStep(TrainingMethod method = TrainingMethod::wfbp_a2a) {
    spec.model = TrainingModel::mlp;
    spec.batch = 1;
    spec.method = method;
    data = open_dataset(spec);
    worker = std::make_unique<TrainingWorker>(spec, learner, *data, 0, 1, 1);
    worker->set_order({1, 0});
    plan.method = method;
    plan.counts = {200, 300};
    plan.pieces = cut(plan.counts, each_alone(2), 1000);
    exchange = make_exchange(comm, plan, worker->gradients(), worker->sums(), worker->memory());
    worker->begin(*exchange);
  }
  StepTimes step(bool crosses = false) { return worker->step(*exchange, crosses); }

  TrainingSpec spec;
  std::unique_ptr<Dataset> data;
  IdleLearner learner{{300, 200}};
  std::unique_ptr<TrainingWorker> worker;
  ExchangePlan plan;
  Network network;
  PacedCommunicator comm{network, 0, 1};
  std::unique_ptr<StepExchange> exchange;
};

constexpr double kForwardUs = 2 * IdleLearner::kForwardUs;
constexpr double kBackwardUs = IdleLearner::kBackwardUs;

}  // namespace

TEST_CASE("a traced step shows stages as the GPU computes them, no other step asks for that",
          "[d-40]") {
  QueuedStep queued;
  TrainingWorker& worker = *queued.worker;
  queued.step();
  // The step's own parts: its start, data, forward and backward pass, the way out of that, the next
  // batch, sums.
  constexpr std::size_t kParts = 7;
  CHECK(queued.learner.memory().stamps.size() == kParts);
  queued.exchange->trace_next();
  worker.trace_next();
  const double start_us = queued.step().start_us;
  // Four seconds and more that the host never waited for.
  const auto spans = worker.stage_spans();
  REQUIRE(spans.size() == 3);
  const auto check = [&](const Span& span, const char* what, double from_us, double to_us) {
    CHECK(std::string(span.what) == what);
    CHECK_THAT(span.start_us, WithinAbs(start_us + from_us, 1));
    CHECK_THAT(span.end_us, WithinAbs(start_us + to_us, 1));
  };
  check(spans[0], "forward", 0, IdleLearner::kForwardUs);
  check(spans[1], "forward", IdleLearner::kForwardUs, kForwardUs);
  check(spans[2], "backward", kForwardUs, kForwardUs + kBackwardUs);
  const auto sums = queued.exchange->take_spans();
  REQUIRE(sums.size() == 2);
  CHECK(sums[1].piece == 1);
  queued.learner.memory().stamps.clear();
  queued.step();
  CHECK(queued.learner.memory().stamps.size() == kParts);
  CHECK(queued.exchange->take_spans().empty());
}

TEST_CASE("a GPU's step has its parts by the GPU's clock, updates out of what it waits", "[a-13]") {
  QueuedStep queued;
  NamedGpuMemory& memory = queued.learner.memory();
  memory.sum_us = 500;
  const auto parts_are = [](const StepTimes& times, double update_us, double exposed_us) {
    CHECK_THAT(times.data_us, WithinAbs(0, 1e-3));
    CHECK_THAT(times.forward_us, WithinAbs(kForwardUs, 1e-3));
    CHECK_THAT(times.backward_us, WithinAbs(kBackwardUs, 1e-3));
    CHECK_THAT(times.update_us, WithinAbs(update_us, 1e-3));
    CHECK_THAT(times.exposed_us, WithinAbs(exposed_us, 1e-3));
  };
  parts_are(queued.step(), 0, 1000);
  CHECK_FALSE(memory.times_updates);
  // One update ends in the backward pass, which hides it; the next begins there, and the last is
  // within what the computation waits.
  const double end_us = memory.computed_us + kForwardUs + kBackwardUs;
  memory.ran = {
      {end_us - 700, end_us - 300}, {end_us - 200, end_us + 50}, {end_us + 600, end_us + 800}};
  parts_are(queued.step(), 250, 750);
  // What the GPU sums while the host leaves the backward pass is no part of that.
  memory.ran.clear();
  queued.learner.leave_us = 300;
  parts_are(queued.step(), 0, 1300);
}

TEST_CASE("what a GPU waits for between stages is what the step before left open", "[a-13]") {
  QueuedStep queued(TrainingMethod::dear);
  NamedGpuMemory& memory = queued.learner.memory();
  memory.sum_us = 500;
  CHECK_THAT(queued.step(true).exposed_us, WithinAbs(0, 1e-3));
  const StepTimes times = queued.step(true);
  CHECK_THAT(times.forward_us, WithinAbs(kForwardUs, 1e-3));
  CHECK_THAT(times.exposed_us, WithinAbs(1000, 1e-3));
  CHECK_THAT(times.parts_us(), WithinAbs(kForwardUs + kBackwardUs + 1000, 1e-3));
}

TEST_CASE("a step by itself on a GPU has its parts by the GPU's clock too", "[a-13]") {
  QueuedStep queued;
  const StepTimes times = queued.worker->step_by_itself(true);
  CHECK_THAT(times.forward_us, WithinAbs(kForwardUs, 1e-3));
  CHECK_THAT(times.backward_us, WithinAbs(kBackwardUs, 1e-3));
  CHECK_THAT(times.exposed_us, WithinAbs(0, 1e-3));
}
