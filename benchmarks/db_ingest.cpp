#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <filesystem>
#include <thread>

#include "core/vocabulary/digest.hpp"
#include "db/store.hpp"
#include "orchestrator/launch/record_server.hpp"
#include "workers/run/record_link.hpp"

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

/// The same records on their way from eight writers, each over a connection of its own, into the
/// launch's files. The bar is 0.6 of what `ingest` takes of them in the same run.
void records_over_tcp(benchmark::State& state) {
  constexpr int kWriters = 8;
  const auto work = make_workload(static_cast<int>(state.range(0)), kWriters);
  const auto records = make_records(work, static_cast<int>(state.range(1)));
  const auto folder = std::filesystem::temp_directory_path() / "dynamiccl-records";
  for (auto step : state) {
    static_cast<void>(step);
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    RecordServer server({folder.string(), "{}", kWriters});
    const RecordsEndpoint endpoint{{"127.0.0.1"}, server.port(), server.token()};
    std::vector<std::thread> writers;
    for (int rank = 0; rank < kWriters; ++rank)
      writers.emplace_back([&, rank] {
        RecordLink link(endpoint, rank, "refuse");
        for (const auto& record : records[static_cast<std::size_t>(rank)].records)
          link.write(to_json_line(record));
      });
    for (auto& writer : writers) writer.join();
    if (!server.finish(Micros{5e6}).empty() ||
        server.counts().lines != static_cast<std::uint64_t>(kWriters * state.range(0)))
      state.SkipWithError("lines were lost");
  }
  const auto rows = state.range(0) * kWriters * state.range(1);
  state.counters["rows/s"] = benchmark::Counter(static_cast<double>(state.iterations() * rows),
                                                benchmark::Counter::kIsRate);
  std::filesystem::remove_all(folder);
}

BENCHMARK(records_over_tcp)->Args({20, 110})->Args({60, 1000})->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
