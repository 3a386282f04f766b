#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include "db/reader.hpp"
#include "db/store.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Approx;

namespace {

Value one(const Reader& reader, const std::string& sql) {
  return reader.query(sql).rows.at(0).at(0);
}

}  // namespace

TEST_CASE("clocks, skew and an unsettled start of a launch are stored") {
  const ScratchFolder folder;
  const auto path = folder.file("a.sqlite");
  Store store(path);
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
  const auto start = make_start(plan.groups[0].id, 0);
  const auto row = store.begin_launch("run-1", start);
  auto records = make_records(plan.cells, plan.groups[0].id, start.uuid, 2, 60,
                              [](const CellInfo&, int, int iteration) {
                                return (iteration < 12 ? 9.0 : 5.0) + 0.01 * (iteration % 5);
                              });
  for (int rank = 0; rank < 2; ++rank) {
    ClockRecord clock;
    clock.rank = rank;
    clock.offset_us = rank * 0.25;
    clock.error_us = 0.5;
    clock.shared = true;
    records[static_cast<std::size_t>(rank)].records.emplace_back(clock);
  }
  store.finish_launch(row, make_end(), records);
  const Reader reader(path);
  CHECK(one(reader, "SELECT count(*) FROM launch_rank WHERE clock_shared = 1") ==
        Value(std::int64_t{2}));
  CHECK(one(reader, "SELECT clock_offset_us FROM launch_rank WHERE rank = 1") == Value(0.25));
  CHECK(one(reader, "SELECT settled_at FROM v_measurement") == Value(std::int64_t{12}));
  CHECK(std::holds_alternative<double>(one(reader, "SELECT skew_us FROM v_measurement")));
  CHECK(one(reader, "SELECT skew_error_us FROM v_measurement") == Value(0.0));
}

TEST_CASE("a flagged launch counts and is counted") {
  const ScratchFolder folder;
  const auto path = folder.file("a.sqlite");
  Store store(path);
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
  for (int block = 0; block < 3; ++block) {
    const auto start = make_start(plan.groups[0].id, block);
    const auto row = store.begin_launch("run-1", start);
    auto end = make_end();
    if (block > 0) end.noise_flags_json = block == 1 ? R"(["others used 80 % of the CPUs"])" : "[]";
    store.finish_launch(row, end,
                        make_records(plan.cells, plan.groups[0].id, start.uuid, 2, 10,
                                     [](const CellInfo&, int, int) { return 5.0; }));
  }
  const Reader reader(path);
  CHECK(one(reader, "SELECT launches FROM v_cell") == Value(std::int64_t{3}));
  CHECK(one(reader, "SELECT noisy_launches FROM v_cell") == Value(std::int64_t{1}));
  CHECK(one(reader, "SELECT group_concat(noisy) FROM v_launch") == Value(std::string("0,1,0")));
}

TEST_CASE("a stopping rule sees the medians in the order of blocks, and its end is stored") {
  const ScratchFolder folder;
  const auto path = folder.file("a.sqlite");
  Store store(path);
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024, 2048});
  store.begin_run(plan.run, plan.groups, plan.cells);
  for (const int block : {1, 0}) {
    store_launch(store, plan, plan.groups[0], block, [&](const CellInfo& cell, int, int) {
      return static_cast<double>(block + 1) * (cell.size_bytes == 1024 ? 1 : 10);
    });
  }
  const auto cells = store.launch_medians("run-1");
  REQUIRE(cells.size() == 2);
  CHECK(cells[0].group_id == plan.groups[0].id);
  REQUIRE(cells[0].median_us.size() == 2);
  CHECK(cells[0].median_us[0] < cells[0].median_us[1]);
  store.set_stopping("run-1", plan.groups[0].id, R"({"reached":true})");
  CHECK(one(Reader(path), "SELECT stopping_json ->> 'reached' FROM plan_group") ==
        Value(std::int64_t{1}));
}
