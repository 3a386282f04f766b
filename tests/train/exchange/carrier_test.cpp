#include "train/exchange/carrier.hpp"

#include <catch2/catch_test_macros.hpp>

#include "tests/train/idle_communicator.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;

namespace {

/// Sums on a GPU; messages go over another library, as under NCCL.
class TwoLibraries final : public IdleCommunicator {
 public:
  TwoLibraries() : IdleCommunicator(0, 2) {}
  [[nodiscard]] std::string library() const override { return "sums 1"; }
  [[nodiscard]] std::string carrier() const override { return "messages 2"; }
  [[nodiscard]] bool works_on_gpu() const override { return true; }
};

/// One library for both, in host memory.
class OneLibrary final : public IdleCommunicator {
 public:
  OneLibrary() : IdleCommunicator(0, 2) {}
  [[nodiscard]] std::string library() const override { return "both 3"; }
};

ExchangePlan plan_of(TrainingMethod method, int servers) {
  ExchangePlan plan;
  plan.method = method;
  plan.servers = servers;
  return plan;
}

}  // namespace

TEST_CASE("what servers sum under a library of GPU memory is said to be another library's") {
  TwoLibraries gpu;
  const auto served = carrier_of(gpu, plan_of(TrainingMethod::bsp_ps, 1));
  CHECK(served.library == "messages 2");
  CHECK(served.path == "host memory over messages 2, summed by the servers' CPUs");
  const auto halves = carrier_of(gpu, plan_of(TrainingMethod::dear, 0));
  CHECK(halves.library == "messages 2");
  CHECK(halves.path == "host memory over messages 2");
  ExchangePlan summed = plan_of(TrainingMethod::bsp_a2a, 0);
  CHECK(carrier_of(gpu, summed).library == "sums 1");
  CHECK(carrier_of(gpu, summed).path == "direct");
  summed.path.lanes = 3;
  CHECK(carrier_of(gpu, summed).path == "3 communicators");
  OneLibrary host;
  CHECK(carrier_of(host, plan_of(TrainingMethod::bsp_ps, 1)).library == "both 3");
  CHECK(carrier_of(host, plan_of(TrainingMethod::bsp_ps, 1)).path == "direct");
}
