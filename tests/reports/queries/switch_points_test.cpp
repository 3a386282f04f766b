#include <catch2/catch_test_macros.hpp>
#include <map>
#include <variant>

#include "core/vocabulary/digest.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"
#include "reports/queries/registry.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;

namespace {

/// Low latency below 1 MiB, bandwidth above: 5 + 8 ns a byte against 20 + 1 ns a byte meet at 2
/// KiB.
double time_of(const std::string& way, std::uint64_t size_bytes) {
  const auto bytes = static_cast<double>(size_bytes);
  return way == "RING/LL" ? 5 + 8e-3 * bytes : 20 + 1e-3 * bytes;
}

/// The library switches at 1 MiB, where it should at 2 KiB.
std::string way_of(const CellInfo& cell) {
  if (cell.algorithm == "ring/ll") return "RING/LL";
  if (cell.algorithm == "ring/simple") return "RING/SIMPLE";
  return cell.size_bytes < (1U << 20) ? "RING/LL" : "RING/SIMPLE";
}

SyntheticPlan swept_plan() {
  auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024, 65536, 1U << 20, 1U << 24});
  const auto own = plan.cells;
  for (const char* algorithm : {"ring/ll", "ring/simple"}) {
    for (CellInfo cell : own) {
      cell.id = stable_id(cell.id + algorithm);
      cell.algorithm = algorithm;
      plan.cells.push_back(cell);
    }
  }
  // A setting of the call is no choice of the library's own; at 1 MiB nobody swept anything else.
  std::erase_if(plan.cells, [](const CellInfo& cell) {
    return cell.size_bytes == 1U << 20 && cell.algorithm != "library";
  });
  return plan;
}

Table swept() {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const SyntheticPlan plan = swept_plan();
  store.begin_run(plan.run, plan.groups, plan.cells);
  std::map<std::string, std::string> ran;
  for (const CellInfo& cell : plan.cells) ran[cell.id] = way_of(cell) + ", 4 channels";
  for (int block = 0; block < 4; ++block) {
    const LaunchStart start = make_start(plan.groups[0].id, block);
    const auto launch = store.begin_launch("run-1", start);
    auto files = make_records(plan.cells, plan.groups[0].id, start.uuid, 2, 10,
                              [&](const CellInfo& cell, int, int) {
                                return time_of(way_of(cell), cell.size_bytes) * (1 + 1e-4 * block);
                              });
    for (RecordFile& file : files)
      for (auto& record : file.records)
        if (auto* cell = std::get_if<CellRecord>(&record)) cell->algorithm = ran.at(cell->cell_id);
    store.finish_launch(launch, make_end(), files);
  }
  store.end_run("run-1", "complete");
  return named_query(Reader(folder.file("a.sqlite")), "switch_points", {});
}

}  // namespace

TEST_CASE("the library's own switch stands beside the one that the sweep shows", "[H-21]") {
  const Table table = swept();
  const TableView rows(table);
  REQUIRE(rows.size() == 3);  // 1 MiB has nothing to be held against

  CHECK(rows.integer(0, "size_bytes") == 1024);
  CHECK(rows.integer(0, "measured") == 3);
  CHECK(rows.text(0, "library_runs") == "RING/LL, 4 channels");
  CHECK(rows.text(0, "best_left").empty());

  CHECK(rows.integer(1, "size_bytes") == 65536);
  CHECK(rows.text(1, "library_runs") == "RING/LL, 4 channels");
  CHECK(rows.text(1, "library_left").empty());
  CHECK(rows.text(1, "best_runs") == "RING/SIMPLE, 4 channels");
  CHECK(rows.text(1, "best_left") == "RING/LL");
  CHECK(*rows.real(1, "ratio") < 0.2);
  CHECK(rows.text(1, "verdict") == "FASTER");

  CHECK(rows.integer(2, "size_bytes") == 1U << 24);
  CHECK(rows.text(2, "library_left") == "RING/LL");
  CHECK(rows.text(2, "best_left").empty());
}
