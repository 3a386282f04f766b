#include "orchestrator/plan/estimate.hpp"

#include <catch2/catch_test_macros.hpp>
#include <utility>

#include "orchestrator/launch/launch.hpp"
#include "train/spec/training.hpp"

using namespace dynamiccl;

namespace {

PlannedCell collective_of(std::uint64_t bytes) {
  PlannedCell cell;
  cell.work.collective = Collective::allreduce;
  cell.work.size = Bytes(bytes);
  return cell;
}

PlannedCell training_of(TrainingMethod method) {
  TrainingSpec spec;
  spec.method = method;
  PlannedCell cell;
  cell.work = training_cell(spec);
  return cell;
}

PlannedGroup group_of(std::vector<PlannedCell> cells) {
  PlannedGroup group;
  group.ranks = 2;
  group.cells = std::move(cells);
  return group;
}

}  // namespace

TEST_CASE("a launch may take what its cells' caps and trials may take", "[d-50]") {
  RunProtocol protocol;
  protocol.cells.cell_time_cap = Micros(10e6);
  const auto seconds = [&](std::vector<PlannedCell> cells) {
    return launch_timeout(protocol, launch_cells(group_of(std::move(cells)), 0)).seconds();
  };
  const double none = seconds({});
  CHECK(seconds({collective_of(1024)}) >= none + 30);
  // Whatever the cap, so many samples are taken, each of which ranks enter late.
  auto late = collective_of(1024);
  late.work.knobs["late"] = "1s";
  protocol.cells.min_iterations = 100;
  CHECK(seconds({late}) >= seconds({collective_of(1024)}) + 100);
  const double plain = seconds({training_of(TrainingMethod::bsp_a2a)});
  CHECK(plain >= none + 30);
  // DeAR's groups are left open here.
  CHECK(seconds({training_of(TrainingMethod::dear)}) >= plain + 30);
  protocol.launch_timeout = Micros(7e6);
  CHECK(seconds({training_of(TrainingMethod::dear)}) == 7);
}

TEST_CASE("a step budget gets the time that it takes, whatever the cap", "[a-31]") {
  RunProtocol protocol;
  protocol.cells.cell_time_cap = Micros(1e6);
  EnvironmentProfile profile;
  profile.kind = EnvironmentKind::bare_metal;
  TrainingSpec spec;
  PlannedCell cell;
  const auto times = [&](int steps, int epochs) {
    spec.steps = steps;
    spec.epochs = epochs;
    cell.work = training_cell(spec);
    const PlannedGroup group = group_of({cell});
    return std::pair{estimated_launch(group, profile, protocol).seconds(),
                     launch_timeout(protocol, launch_cells(group, 0)).seconds()};
  };
  const auto capped = times(0, 0);
  const auto budget = times(391, 0);
  // ResNet-18, batch 32: 107 GFLOP a step and worker.
  CHECK(budget.first > capped.first + 391);
  CHECK(budget.second > capped.second + 391 * 10);
  CHECK(budget.second > 2 * budget.first);
  const auto epochs = times(0, 10);  // of 2048 samples: 32 steps each of two workers
  CHECK(epochs.first < budget.first);
  CHECK(epochs.first > budget.first / 2);
  CHECK(times(0, 20).second > epochs.second);
  // Each sample is a round of ten steps; then each step waits for a worker slowed three times.
  spec.synchronisation = Synchronisation::local;
  spec.local_steps = 10;
  const auto rounds = times(391, 0);
  CHECK(rounds.first - capped.first > 9 * (budget.first - capped.first));
  CHECK(rounds.second - capped.second > 9 * (budget.second - capped.second));
  spec.slow_factor = 3;
  CHECK(times(391, 0).first > 2 * rounds.first);
  CHECK(times(391, 0).second > 2 * rounds.second);
}

TEST_CASE("a warm-up is expected to end at half of the cap", "[a-05]") {
  RunProtocol protocol;
  protocol.cells.iterations = 20;
  protocol.cells.min_iterations = 5;
  protocol.cells.cell_time_cap = Micros(0.1e6);
  EnvironmentProfile profile;
  profile.kind = EnvironmentKind::bare_metal;
  const auto seconds = [&](int warmup, std::uint64_t bytes) {
    protocol.cells.warmup = warmup;
    return estimated_launch(group_of({collective_of(bytes)}), profile, protocol).seconds();
  };
  // Calls of 64 MiB take some 30 ms: two of them are the half.
  CHECK(seconds(64, 64U << 20) - seconds(2, 64U << 20) < 0.05);
  CHECK(seconds(2, 64U << 20) > seconds(0, 64U << 20));
  CHECK(seconds(64, 1024) > seconds(2, 1024));
}
