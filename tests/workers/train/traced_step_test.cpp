// The one step of a GPU's cell whose timeline is kept.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "tests/workers/train/paced_gpu.hpp"
#include "workers/train/exchange/queued_exchange.hpp"
#include "workers/train/worker_step.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::WithinAbs;

TEST_CASE("a traced step shows stages as the GPU computes them, no other step asks for that",
          "[d-40]") {
  TrainingSpec spec;
  spec.model = TrainingModel::mlp;
  spec.batch = 1;
  const auto data = open_dataset(spec);
  IdleLearner learner({300, 200});
  TrainingWorker worker(spec, learner, *data, 0, 1, 1);
  worker.set_order({1, 0});
  ExchangePlan plan;
  plan.method = TrainingMethod::wfbp_a2a;
  plan.counts = {200, 300};
  plan.pieces = cut(plan.counts, each_alone(2), 1000);
  Network network;
  PacedCommunicator comm(network, 0, 1);
  const auto exchange =
      make_exchange(comm, plan, worker.gradients(), worker.sums(), worker.memory());
  worker.begin(*exchange);
  worker.step(*exchange, false);
  CHECK(learner.memory().stamps.empty());
  exchange->trace_next();
  worker.trace_next();
  const double start_us = worker.step(*exchange, false).start_us;
  // Four seconds and more that the host never waited for.
  const auto spans = worker.stage_spans();
  REQUIRE(spans.size() == 3);
  const auto check = [&](const Span& span, const char* what, double from_us, double to_us) {
    CHECK(std::string(span.what) == what);
    CHECK_THAT(span.start_us, WithinAbs(start_us + from_us, 1));
    CHECK_THAT(span.end_us, WithinAbs(start_us + to_us, 1));
  };
  check(spans[0], "forward", 0, IdleLearner::kForwardUs);
  check(spans[1], "forward", IdleLearner::kForwardUs, 2 * IdleLearner::kForwardUs);
  check(spans[2], "backward", 2 * IdleLearner::kForwardUs,
        2 * IdleLearner::kForwardUs + IdleLearner::kBackwardUs);
  const auto sums = exchange->take_spans();
  REQUIRE(sums.size() == 2);
  CHECK(sums[1].piece == 1);
  learner.memory().stamps.clear();
  worker.step(*exchange, false);
  CHECK(learner.memory().stamps.empty());
  CHECK(exchange->take_spans().empty());
}
