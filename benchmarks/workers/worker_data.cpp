#include <benchmark/benchmark.h>

#include <cstddef>
#include <string>
#include <vector>

#include "workers/collectives/sum.hpp"
#include "workers/data/data.hpp"

// What a worker does to the data itself, between and inside the timed calls: making an input,
// comparing a result element by element, adding two buffers. Bytes per second of the buffer.

namespace {

using namespace dynamiccl;

constexpr int kRanks = 4;

std::size_t elements_of(const benchmark::State& state, DataType type) {
  return static_cast<std::size_t>(state.range(1)) / element_bytes(type);
}

void count_bytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(1));
  state.SetLabel(std::string(name_of(static_cast<DataType>(state.range(0)))));
}

void fill(benchmark::State& state) {
  const auto type = static_cast<DataType>(state.range(0));
  const DataSource source(data_key(1, "cell"), type, kRanks);
  std::vector<std::byte> out(static_cast<std::size_t>(state.range(1)));
  for (auto _ : state) {
    source.fill(out.data(), 1, 0, elements_of(state, type));
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}

void verify_one_part(benchmark::State& state) {
  const auto type = static_cast<DataType>(state.range(0));
  const DataSource source(data_key(1, "cell"), type, kRanks);
  const std::size_t count = elements_of(state, type);
  std::vector<std::byte> out(static_cast<std::size_t>(state.range(1)));
  source.fill(out.data(), 1, 0, count);
  const std::vector<ExpectedPart> parts{{0, count, 0, 1, 1, -1}};
  for (auto _ : state) {
    const DataVerdict verdict = verify(source, out.data(), parts);
    if (verdict.wrong != 0) state.SkipWithError("the data is right, the verdict is not");
  }
  count_bytes(state);
}

void add(benchmark::State& state) {
  const auto type = static_cast<DataType>(state.range(0));
  const DataSource source(data_key(1, "cell"), type, kRanks);
  const std::size_t count = elements_of(state, type);
  std::vector<std::byte> a(static_cast<std::size_t>(state.range(1)));
  std::vector<std::byte> b(a.size());
  source.fill(a.data(), 0, 0, count);
  source.fill(b.data(), 1, 0, count);
  std::vector<std::byte> out(a.size());
  for (auto _ : state) {
    sum_elements(out.data(), a.data(), b.data(), count, type);
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}

void every_type_and_size(benchmark::internal::Benchmark* benchmark) {
  for (const auto& entry : NameTable<DataType>::entries)
    for (const std::int64_t bytes : {std::int64_t{1} << 10, std::int64_t{1} << 24})
      benchmark->Args({static_cast<std::int64_t>(entry.value), bytes});
}

BENCHMARK(fill)->Apply(every_type_and_size);
BENCHMARK(verify_one_part)->Apply(every_type_and_size);
BENCHMARK(add)->Apply(every_type_and_size);

}  // namespace

BENCHMARK_MAIN();
