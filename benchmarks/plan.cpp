#include <benchmark/benchmark.h>

#include <string>

#include "orchestrator/plan/plan.hpp"

// From the text of an experiment to its plan. The bar is 100,000 cells in two seconds.

namespace {

using namespace dynamiccl;

constexpr const char* kExperiment = R"(name = "many"
[axes]
environment = ["bare-metal", "singularity", "single-docker", "cross-docker"]
backend = ["openmpi", "mpich", "gloo"]
architecture = ["ring"]
ranks = [RANKS]
[[work]]
collective = ["allreduce", "allgather", "reduce_scatter", "broadcast", "reduce", "alltoall", "sendrecv"]
size = { from = "4KiB", to = "1GiB", factor = 2 }
datatype = ["float32", "float64", "float16", "int32"]
)";

void read_and_plan(benchmark::State& state) {
  const auto profiles = load_profiles({DYNAMICCL_SOURCE_DIR "/profiles/environments"});
  std::string text = kExperiment;
  std::string ranks = "1";
  for (std::int64_t n = 2; n <= state.range(0); ++n) ranks += ", " + std::to_string(n);
  text.replace(text.find("RANKS"), 5, ranks);
  std::size_t cells = 0;
  for (auto _ : state) {
    const Experiment experiment = parse_experiment(text, "many.toml", {}, profiles);
    cells = make_plan(experiment, {}, nullptr).cell_count();
  }
  state.counters["cells"] = static_cast<double>(cells);
  state.counters["cells/s"] =
      benchmark::Counter(static_cast<double>(cells), benchmark::Counter::kIsIterationInvariantRate);
}

BENCHMARK(read_and_plan)->Arg(1)->Arg(16)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
