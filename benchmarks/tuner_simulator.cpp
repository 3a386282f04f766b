#include <benchmark/benchmark.h>

#include "tuner/learn/world.hpp"

namespace dynamiccl {
namespace {

/// Cells of simulated places, machine and links included; the bar is 50 us a cell.
void simulated_cells(benchmark::State& state) {
  const SimCatalog catalog;
  FastRandom random(2);
  std::int64_t cells = 0;
  for (auto _ : state) {
    const SimPlace place =
        draw_place(catalog, static_cast<CurriculumStage>(state.range(0)), random);
    cells += static_cast<std::int64_t>(place.cells.size());
  }
  state.SetItemsProcessed(cells);
}
BENCHMARK(simulated_cells)->Arg(1)->Arg(3);

}  // namespace
}  // namespace dynamiccl

BENCHMARK_MAIN();
