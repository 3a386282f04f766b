#include <benchmark/benchmark.h>

#include "tuner/simulator/vector_simulator.hpp"

namespace dynamiccl {
namespace {

/// Steps of the vectorised simulator, new tasks and regimes included; the bar is 100,000/s on one
/// core.
void simulator_steps(benchmark::State& state) {
  const SimCatalog catalog;
  SimulatorOptions options;
  options.stage = static_cast<CurriculumStage>(state.range(0));
  VectorSimulator simulator(catalog, options, 256, 1);
  FastRandom random(2);
  std::vector<std::uint32_t> arms(simulator.count());
  for (auto _ : state) {
    for (std::size_t i = 0; i < arms.size(); ++i)
      arms[i] = static_cast<std::uint32_t>(random.below(simulator.task(i).log_us.size()));
    benchmark::DoNotOptimize(simulator.step(arms).log_us.data());
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * arms.size()));
}
BENCHMARK(simulator_steps)->Arg(1)->Arg(3);

}  // namespace
}  // namespace dynamiccl

BENCHMARK_MAIN();
