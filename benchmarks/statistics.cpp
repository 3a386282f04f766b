#include <benchmark/benchmark.h>

#include <cmath>
#include <random>
#include <vector>

#include "core/statistics/statistics.hpp"

// Intervals and ratios are computed again for every figure of a table and page, and after every
// launch by the stopping rule.

namespace {

using namespace dynamiccl;

std::vector<double> launches(std::int64_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> noise(0, 0.02);
  std::vector<double> medians;
  for (std::int64_t i = 0; i < count; ++i) medians.push_back(100 * std::exp(noise(random)));
  return medians;
}

void interval_of_launches(benchmark::State& state) {
  const auto medians = launches(state.range(0), 1);
  for (auto _ : state) benchmark::DoNotOptimize(launch_interval(medians));
}

void unpaired_ratio(benchmark::State& state) {
  const auto one = launches(state.range(0), 1);
  const auto other = launches(state.range(0), 2);
  for (auto _ : state) benchmark::DoNotOptimize(ratio_unpaired(one, other));
}

void paired_ratio(benchmark::State& state) {
  const auto one = launches(state.range(0), 1);
  const auto other = launches(state.range(0), 2);
  for (auto _ : state) benchmark::DoNotOptimize(ratio_paired(one, other));
}

void median_of_samples(benchmark::State& state) {
  const auto samples = launches(state.range(0), 1);
  for (auto _ : state) benchmark::DoNotOptimize(median(samples));
}

BENCHMARK(interval_of_launches)->Arg(5)->Arg(20)->Arg(40);
BENCHMARK(unpaired_ratio)->Arg(5)->Arg(20)->Arg(40);
BENCHMARK(paired_ratio)->Arg(5)->Arg(20)->Arg(40);
BENCHMARK(median_of_samples)->Arg(100)->Arg(10000);

}  // namespace

BENCHMARK_MAIN();
