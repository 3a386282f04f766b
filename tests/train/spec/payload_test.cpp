// What a library sees of a training cell.
#include "train/spec/payload.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

using namespace dynamiccl;
using Catch::Matchers::WithinRel;

namespace {

TrainingSpec resnet(TrainingMethod method, Codec codec = Codec::none) {
  TrainingSpec spec;
  spec.method = method;
  spec.compression = codec;
  return spec;
}

constexpr std::uint64_t kParameters = 11'173'962;  // of ResNet-18

}  // namespace

TEST_CASE("payload and firing of the survey's five cases", "[d-100]") {
  // Uncompressed, in every step.
  const Payload plain = payload_of(resnet(TrainingMethod::bsp_a2a));
  CHECK(plain.nominal_bytes == 4 * kParameters);
  CHECK(plain.effective_bytes == plain.nominal_bytes);
  CHECK(plain.firing == Firing::every_step);
  CHECK(plain.exchanges == 1);
  // 1 bit with error feedback: a 32nd, and two means.
  const Payload onebit = payload_of(resnet(TrainingMethod::bsp_a2a, Codec::onebit));
  CHECK(onebit.nominal_bytes == plain.nominal_bytes);
  CHECK(onebit.effective_bytes == (kParameters + 7) / 8 + 8);
  // Top-k at 1 %: a place and a value for each, however its density came down.
  TrainingSpec sparse = resnet(TrainingMethod::bsp_a2a, Codec::topk);
  sparse.density_warmup = 100;
  CHECK(payload_of(sparse).effective_bytes == 8 * 111'740U);
  CHECK_THAT(payload_of(sparse).share(), WithinRel(0.02, 1e-3));
  // Local steps: all weights, every tau steps.
  TrainingSpec local = resnet(TrainingMethod::bsp_a2a);
  local.synchronisation = Synchronisation::local;
  local.local_steps = 8;
  CHECK(payload_of(local).effective_bytes == plain.nominal_bytes);
  CHECK(payload_of(local).firing == Firing::every_round);
  CHECK(payload_of(local).exchanges == 0.125);
  // ASP: each worker by itself.
  TrainingSpec asp = resnet(TrainingMethod::bsp_ps);
  asp.synchronisation = Synchronisation::asp;
  CHECK(payload_of(asp).effective_bytes == plain.nominal_bytes);
  CHECK(payload_of(asp).firing == Firing::push_pull);
  CHECK(payload_of(asp).exchanges == 1);
  for (const Codec codec : {Codec::powersgd, Codec::threshold, Codec::qsgd_adaptive})
    CHECK_FALSE(payload_of(resnet(TrainingMethod::bsp_a2a, codec)).effective_bytes);
}

TEST_CASE("C2C follows what is sent: gathered frames grow with the workers, merged ones hardly",
          "[d-100][d-72]") {
  const auto of = [](Codec codec, int workers, TrainingMethod method = TrainingMethod::bsp_a2a) {
    return c2c_effective(resnet(method, codec), workers).value();
  };
  const double plain = c2c_predicted(resnet(TrainingMethod::bsp_a2a), 4);
  CHECK(of(Codec::none, 4) == plain);
  CHECK_THAT(of(Codec::bf16, 4), WithinRel(plain / 2, 1e-9));
  // Top-k: 0.02 to each of three others, where 2 * 3/4 went around.
  CHECK_THAT(of(Codec::topk, 4), WithinRel(plain * 0.02 * 3 / 1.5, 1e-4));
  CHECK_THAT(of(Codec::topk, 64) / of(Codec::topk, 4), WithinRel(21, 1e-9));
  CHECK_THAT(of(Codec::gtopk, 64) / of(Codec::gtopk, 4), WithinRel(3, 1e-9));
  // A server's answers are plain.
  const double served = c2c_predicted(resnet(TrainingMethod::bsp_ps), 4);
  CHECK_THAT(of(Codec::bf16, 4, TrainingMethod::bsp_ps), WithinRel(0.75 * served, 1e-9));
  CHECK_FALSE(c2c_effective(resnet(TrainingMethod::bsp_a2a, Codec::powersgd), 4));
}
