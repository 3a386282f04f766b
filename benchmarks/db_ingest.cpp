#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <filesystem>

#include "core/vocabulary/digest.hpp"
#include "db/store.hpp"

// How fast a launch's records become rows: indexes, foreign keys, statistics and the commit to disk
// included. The bar is 500,000 sample rows per second.

namespace {

using namespace dynamiccl;

struct Workload {
  RunInfo run;
  GroupInfo group;
  std::vector<CellInfo> cells;
};

Workload make_workload(int cells, int ranks) {
  Workload work;
  work.run.id = "benchmark";
  work.run.name = "benchmark";
  work.group = {"group", "bare-metal", "{}", "openmpi", "ring", ranks, "{}"};
  for (int i = 0; i < cells; ++i) {
    CellInfo cell;
    cell.id = stable_id(std::to_string(i));
    cell.group_id = work.group.id;
    cell.collective = "allreduce";
    cell.size_bytes = 1024U * static_cast<unsigned>(i + 1);
    cell.datatype = "float32";
    cell.algorithm = "library";
    work.cells.push_back(cell);
  }
  return work;
}

std::vector<RecordFile> make_records(const Workload& work, int iterations) {
  std::vector<RecordFile> files;
  for (int rank = 0; rank < work.group.ranks; ++rank) {
    RecordFile file;
    for (const auto& cell : work.cells) {
      CellRecord record;
      record.cell_id = cell.id;
      record.rank = rank;
      record.barrier = "dissemination";
      for (int i = 0; i < iterations; ++i) {
        const double total = 100.0 + 0.37 * ((i * 7919 + rank * 31) % 101);
        record.measured.start_us.push_back(i * 150.25);
        record.measured.total_us.push_back(total);
        record.measured.collective_us.push_back(total - 0.125);
      }
      file.records.emplace_back(std::move(record));
    }
    files.push_back(std::move(file));
  }
  return files;
}

void ingest(benchmark::State& state) {
  const auto work =
      make_workload(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
  const auto records = make_records(work, static_cast<int>(state.range(2)));
  const auto folder = std::filesystem::temp_directory_path() / "dynamiccl-ingest";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  {
    Store store((folder / "ingest.sqlite").string());
    store.begin_run(work.run, {work.group}, work.cells);
    int block = 0;
    for (auto step : state) {
      static_cast<void>(step);
      LaunchStart start;
      start.uuid = fmt::format("launch-{}", block);
      start.group_id = work.group.id;
      start.block = block++;
      store.finish_launch(store.begin_launch(work.run.id, start), LaunchEnd{}, records);
    }
  }
  const auto rows = state.range(0) * state.range(1) * state.range(2);
  state.counters["rows/s"] = benchmark::Counter(static_cast<double>(state.iterations() * rows),
                                                benchmark::Counter::kIsRate);
  std::filesystem::remove_all(folder);
}

// cells, ranks, iterations: a launch of the quickstart, a larger one, many ranks.
BENCHMARK(ingest)->Args({20, 2, 110})->Args({60, 2, 1000})->Args({20, 32, 110})->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
