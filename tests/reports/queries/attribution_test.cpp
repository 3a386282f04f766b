#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <map>
#include <string>

#include "core/vocabulary/json.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/registry.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::WithinRel;

namespace {

/// All-reduces of 1 and 4 KiB take 10 and 40 us on bare metal, twice that in containers.
double benchmark_us(const CellInfo& cell, bool contained) {
  return (cell.size_bytes == 1024 ? 10.0 : 40.0) * (contained ? 2 : 1);
}

struct AttributedCell {
  std::string method;
  std::string settings;
  nlohmann::json pieces;
  double bare_us;  ///< step; in containers 10 us of computing and as much again of waiting more
};

void store_attributed(Store& store, const std::vector<AttributedCell>& trained, bool benchmarked) {
  auto plan = make_plan("both", {"bare-metal", "cross-docker"}, {"allreduce"}, {1024, 4096});
  if (!benchmarked) plan.cells.clear();
  std::map<std::string, const AttributedCell*> of_cell;
  for (const auto& group : plan.groups) {
    for (const auto& each : trained) {
      CellInfo cell;
      cell.id = group.environment + each.method;
      cell.group_id = group.id;
      cell.collective = "training";
      cell.size_bytes = 1024;
      cell.datatype = "float32";
      cell.algorithm = each.method;
      cell.knobs_json = each.settings;
      of_cell[cell.id] = &each;
      plan.cells.push_back(cell);
    }
  }
  store.begin_run(plan.run, plan.groups, plan.cells);
  for (const auto& group : plan.groups) {
    const bool contained = group.environment != "bare-metal";
    const auto start = make_start(group.id, 0);
    const auto launch = store.begin_launch(plan.run.id, start);
    auto files =
        make_records(plan.cells, group.id, start.uuid, 2, 10, [&](const CellInfo& cell, int, int) {
          const auto found = of_cell.find(cell.id);
          if (found == of_cell.end()) return benchmark_us(cell, contained);
          return found->second->bare_us * (contained ? 2 : 1);
        });
    for (auto& file : files) {
      for (auto& record : file.records) {
        auto* cell = std::get_if<CellRecord>(&record);
        const auto found = cell == nullptr ? of_cell.end() : of_cell.find(cell->cell_id);
        if (found == of_cell.end()) continue;
        TrainingFigures& figures = cell->training.emplace();
        figures.role = "worker";
        figures.forward_us = 20;
        figures.backward_us = contained ? 50 : 40;
        figures.exposed_us = contained ? 100 : 30;
        figures.details["pieces"] = found->second->pieces;
      }
    }
    store.finish_launch(launch, make_end(), files);
  }
}

const std::string kMlp = R"({"model":"mlp","batch":"8"})";

}  // namespace

TEST_CASE("a slower step is taken apart, beside what the micro-benchmark says of its messages",
          "[A-13]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  // One message of 2,560 B: 25 us; one of 1,024 B and one below the smallest measured: 20 us.
  store_attributed(
      store,
      {{"bsp-a2a", kMlp, {{0, 640, 0}}, 100}, {"wfbp-a2a", kMlp, {{0, 256, 0}, {256, 4, 0}}, 80}},
      true);
  const Table table = named_query(Reader(folder.file("a.sqlite")), "attribution", {});
  const TableView rows(table);
  REQUIRE(rows.size() == 4);
  CHECK(rows.text(0, "environment") == "bare-metal");
  CHECK(rows.real(0, "benchmark_us") == 25.0);
  CHECK_FALSE(rows.real(0, "step_difference_us"));
  CHECK(rows.text(2, "environment") == "cross-docker");
  CHECK(rows.text(2, "method") == "bsp-a2a");
  CHECK(rows.real(2, "step_difference_us") == 100.0);
  CHECK(rows.real(2, "compute_difference_us") == 10.0);
  CHECK(rows.real(2, "exposed_difference_us") == 70.0);
  CHECK(rows.real(2, "rest_difference_us") == 20.0);
  CHECK(rows.integer(2, "messages") == 1);
  CHECK(rows.real(2, "benchmark_us") == 50.0);
  CHECK(rows.real(2, "bare_benchmark_us") == 25.0);
  CHECK(rows.real(2, "benchmark_difference_us") == 25.0);
  // Synthetic ranks communicate for three quarters of their time.
  CHECK(rows.real(2, "communication_difference_us") == 75.0);
  CHECK_THAT(*rows.real(2, "benchmark_over_communication"), WithinRel(50.0 / 150, 1e-9));
  CHECK(rows.real(3, "benchmark_us") == 40.0);
  CHECK(rows.text(3, "note").empty());
  // 25, 20, 50 and 40 us go with 75, 60, 150 and 120.
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CHECK_THAT(*rows.real(i, "correlation"), WithinRel(1.0, 1e-9));
    CHECK(rows.integer(i, "correlated_cells") == 4);
  }
}

TEST_CASE("a micro-benchmark that is missing is named, and the step is taken apart without it",
          "[A-13]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  SECTION("of a larger message, or of packed ones") {
    const std::string packed = R"({"model":"mlp","batch":"8","packing":"exponents"})";
    store_attributed(
        store, {{"bsp-a2a", kMlp, {{0, 2048, 0}}, 100}, {"dear", packed, {{0, 256, 0}}, 80}}, true);
    const Table table = named_query(Reader(folder.file("a.sqlite")), "attribution", {});
    const TableView rows(table);
    REQUIRE(rows.size() == 4);
    CHECK(rows.text(2, "note") == "allreduce of 8 KiB needed, measured up to 4 KiB");
    CHECK(rows.text(3, "note") == "messages travel packed, those of the benchmark do not");
    CHECK_FALSE(rows.real(2, "benchmark_us"));
    CHECK_FALSE(rows.real(2, "correlation"));
    CHECK(rows.real(2, "step_difference_us") == 100.0);
  }
  SECTION("of the whole operation") {
    store_attributed(store, {{"bsp-a2a", kMlp, {{0, 256, 0}}, 100}}, false);
    const Table table = named_query(Reader(folder.file("a.sqlite")), "attribution", {});
    CHECK(TableView(table).text(1, "note") == "no allreduce of float32 measured in the same run");
  }
}
