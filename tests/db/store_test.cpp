#include "db/store.hpp"

#include <sqlite3.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "core/vocabulary/error.hpp"
#include "db/connection.hpp"
#include "db/reader.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

std::int64_t integer(const Reader& reader, const std::string& sql) {
  return std::get<std::int64_t>(reader.query(sql).rows.at(0).at(0));
}

double real(const Reader& reader, const std::string& sql) {
  return std::get<double>(reader.query(sql).rows.at(0).at(0));
}

double ten_and_rank(const CellInfo&, int rank, int iteration) { return 10.0 + rank + iteration; }

}  // namespace

TEST_CASE("a database that can no longer be written is no mistake in its name", "[safety]") {
  const ScratchFolder folder;
  const auto path = folder.file("a.sqlite");
  { const Store store(path); }
  const auto kind_of = [](const auto& work) {
    try {
      work();
    } catch (const Error& error) {
      INFO(error.what());
      CHECK_THAT(error.what(), ContainsSubstring("database "));
      return error.kind();
    }
    FAIL("nothing was thrown");
    return ErrorKind::bug;
  };
  // As when it is taken away from a run that stores into it.
  auto db = open_for_reading(path);
  CHECK(kind_of([&] {
          explained(path, "storing a launch", [&] { db.exec("DELETE FROM run"); });
        }) == ErrorKind::environment);
  for (const int code : {SQLITE_CANTOPEN, SQLITE_PERM, SQLITE_READONLY, SQLITE_READONLY_DBMOVED}) {
    const SQLite::Exception error("refused", code);
    INFO(code);
    CHECK(kind_of([&] { throw_explained(error, path, "storing a launch"); }) ==
          ErrorKind::environment);
    CHECK(kind_of([&] { opened(path, [&] { throw error; }); }) == ErrorKind::input);
  }
  CHECK(kind_of([] { open_for_writing("/proc/x.sqlite"); }) == ErrorKind::input);
}

TEST_CASE("a finished launch is stored with every sample and exact statistics", "[G-01][G-02]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
  store_launch(store, plan, plan.groups[0], 0, ten_and_rank);

  const Reader reader(folder.file("a.sqlite"));
  CHECK(integer(reader, "SELECT count(*) FROM sample WHERE phase = 1") == 20);
  CHECK(integer(reader, "SELECT count(*) FROM sample WHERE phase = 0") == 4);
  // Rank 1 is the slower one in each iteration: 11, 12, ... 20.
  CHECK(real(reader, "SELECT median_us FROM v_measurement") == 15.5);
  CHECK(real(reader, "SELECT min_us FROM v_measurement") == 11.0);
  CHECK(real(reader, "SELECT max_us FROM v_measurement") == 20.0);
  CHECK(real(reader, "SELECT mean_us FROM v_measurement") == 15.5);
  CHECK(real(reader, "SELECT collective_us FROM v_measurement") == 15.5 * 0.75);
  CHECK(integer(reader, "SELECT n FROM v_measurement") == 10);
  CHECK(integer(reader, "SELECT checked FROM v_measurement") == 512);
  // 2 ranks: busbw = size / time * 2 * (2-1) / 2.
  CHECK(real(reader, "SELECT busbw_bytes_per_s FROM v_measurement") == 1024 / 15.5 * 1e6);
  CHECK(text(reader, "SELECT seed FROM run") == "18446744073709551615");
  CHECK(text(reader, "SELECT status FROM v_cell") == "ok");
  CHECK(integer(reader, "SELECT launches FROM v_cell") == 1);
}

TEST_CASE("training figures are stored per rank and read per launch", "[a-13][d-43]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  auto plan = make_plan("run-1", {"bare-metal"}, {"training"}, {1024});
  plan.cells[0].knobs_json = R"({"model":"cnn","batch":"8"})";
  store.begin_run(plan.run, plan.groups, plan.cells);
  auto start = make_start(plan.groups[0].id, 0);
  const auto launch = store.begin_launch(plan.run.id, start);
  auto files = make_records(plan.cells, plan.groups[0].id, start.uuid, 2, 10, ten_and_rank);
  int rank = 0;
  for (auto& file : files) {
    for (auto& record : file.records) {
      auto* cell = std::get_if<CellRecord>(&record);
      if (cell == nullptr) continue;
      cell->training.emplace();
      cell->training->role = "worker";
      cell->training->single_us = rank == 0 ? 12 : 0;
      cell->training->exposed_us = 3.0 + rank;
      cell->training->predicted_us = 31;
      cell->training->wire_bytes = 1000;
      cell->training->counted_bytes = 1010 + rank;
      ++rank;
    }
  }
  store.finish_launch(launch, make_end(), files);

  const Reader reader(folder.file("a.sqlite"));
  CHECK(integer(reader, "SELECT count(*) FROM training") == 2);
  CHECK(text(reader, "SELECT model FROM v_training") == "cnn");
  CHECK(integer(reader, "SELECT workers FROM v_training") == 2);
  CHECK(real(reader, "SELECT step_us FROM v_training") == 15.5);
  CHECK(real(reader, "SELECT samples_per_s FROM v_training") == 2 * 8 / 15.5 * 1e6);
  CHECK(real(reader, "SELECT speedup FROM v_training") == 2 * 12 / 15.5);
  CHECK(real(reader, "SELECT exposed_us FROM v_training") == 4);
  CHECK(real(reader, "SELECT wire_bytes FROM v_training") == 1000);
  CHECK(real(reader, "SELECT counted_bytes FROM v_training") == 1011);
  CHECK(integer(reader, "SELECT c2c_measured IS NULL FROM v_training") == 1);
  CHECK(integer(reader, "SELECT accuracy IS NULL FROM v_training") == 1);
}

TEST_CASE("resume sees which blocks are measured and never stores one twice", "[B-08]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto plan = make_plan("run-1", {"bare-metal", "cross-docker"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
  store_launch(store, plan, plan.groups[0], 0, ten_and_rank);
  const auto failed = store.begin_launch("run-1", make_start(plan.groups[1].id, 0));
  store.finish_launch(failed, make_end(LaunchStatus::failed, "rank 1 was killed"), {});

  CHECK(store.finished_launches("run-1") == std::set<LaunchKey>{{plan.groups[0].id, 0}});
  CHECK(store.next_attempt("run-1", plan.groups[1].id, 0) == 1);
  CHECK(store.next_attempt("run-1", plan.groups[1].id, 1) == 0);

  const auto again = store.begin_launch("run-1", make_start(plan.groups[0].id, 0, 1));
  CHECK_THROWS_WITH(store.finish_launch(again, make_end(), {}),
                    ContainsSubstring("already measured this group and block"));
  CHECK_THROWS_WITH(store.finish_launch(failed, make_end(), {}),
                    ContainsSubstring("already stored as failed"));
  CHECK_THROWS_WITH(store.begin_run(plan.run, plan.groups, plan.cells),
                    ContainsSubstring("run run-1 is already stored"));
}

TEST_CASE("a resumed run knows anew what cannot be measured here", "[B-08]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  auto plan = make_plan("run-1", {"bare-metal", "cross-docker"}, {"allreduce"}, {1024});
  REQUIRE(plan.cells.size() == 2);
  plan.cells[0].unsupported_reason = "not built";
  store.begin_run(plan.run, plan.groups, plan.cells);
  store.mark_unsupported("run-1", plan.groups[1].id, "no container engine");
  const Reader reader(folder.file("a.sqlite"));
  CHECK(integer(reader, "SELECT count(*) FROM v_cell WHERE status = 'unsupported'") == 2);

  // Built and installed since then; another thing is missing now.
  store.resume_run("run-1");
  plan.cells[0].unsupported_reason.clear();
  store.replan_cells("run-1", plan.cells);
  CHECK(integer(reader, "SELECT count(*) FROM run_cell WHERE unsupported_reason IS NULL") == 2);
  CHECK(integer(reader, "SELECT count(*) FROM v_cell WHERE status = 'planned'") == 2);
  plan.cells[1].unsupported_reason = "no root";
  store.replan_cells("run-1", plan.cells);
  CHECK(text(reader, "SELECT reason FROM v_cell WHERE environment = 'cross-docker'") == "no root");
  CHECK(integer(reader, "SELECT count(*) FROM v_cell WHERE status = 'unsupported'") == 1);
}

TEST_CASE("torn, repeated and foreign records become events, the rest is stored", "[G-01]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce", "broadcast"}, {1024});
  const auto& group = plan.groups[0];
  store.begin_run(plan.run, plan.groups, plan.cells);
  const auto start = make_start(group.id, 0);
  auto files = make_records(plan.cells, group.id, start.uuid, 2, 10, ten_and_rank);
  // Rank 1 was killed in the middle of its second cell's line.
  auto& killed = files[1].records;
  std::erase_if(killed, [&](const Record& record) {
    const auto* cell = std::get_if<CellRecord>(&record);
    return std::holds_alternative<DoneRecord>(record) ||
           (cell != nullptr && cell->cell_id == plan.cells[1].id);
  });
  files[1].torn_line = R"({"type":"cell","cell_id":")";
  files[0].records.push_back(files[0].records[2]);
  CellRecord stray;
  stray.cell_id = "no such cell";
  files[0].records.emplace_back(stray);
  stray.rank = 7;
  files[0].records.emplace_back(stray);
  files[0].records.emplace_back(ErrorRecord{0, "lost rank 1"});
  const auto launch = store.begin_launch("run-1", start);
  store.finish_launch(launch, make_end(LaunchStatus::failed, "rank 1 was killed"), files);

  const Reader reader(folder.file("a.sqlite"));
  CHECK(integer(reader, "SELECT count(*) FROM event WHERE kind = 'torn_record'") == 1);
  CHECK(integer(reader, "SELECT count(*) FROM event WHERE kind = 'repeated_record'") == 1);
  CHECK(integer(reader, "SELECT count(*) FROM event WHERE kind = 'unknown_record'") == 2);
  CHECK(integer(reader, "SELECT torn FROM launch_rank WHERE rank = 1") == 1);
  CHECK(text(reader, "SELECT error FROM launch_rank WHERE rank = 0") == "lost rank 1");
  CHECK(integer(reader, "SELECT count(*) FROM launch_rank WHERE ended_unix_s IS NULL") == 1);
  // What both ranks finished is kept, what only one did is no measurement of the cell.
  CHECK(text(reader, "SELECT status FROM v_measurement WHERE collective = 'allreduce'") == "ok");
  CHECK(integer(reader, "SELECT counts FROM v_measurement WHERE collective = 'allreduce'") == 0);
  CHECK(text(reader, "SELECT reason FROM v_measurement WHERE collective = 'broadcast'") ==
        "only 1 of 2 ranks left a record of this cell: rank 1 was killed");
  CHECK(text(reader, "SELECT status FROM v_cell WHERE collective = 'allreduce'") == "failed");
  CHECK(text(reader, "SELECT reason FROM v_cell WHERE collective = 'allreduce'") ==
        "rank 1 was killed");
}

TEST_CASE("a launch without any record gives every planned cell its outcome", "[A-38]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce", "broadcast"}, {1024});
  plan.cells[1].unsupported_reason = "the library has none";
  store.begin_run(plan.run, plan.groups, plan.cells);
  const auto launch = store.begin_launch("run-1", make_start(plan.groups[0].id, 0));
  auto end = make_end(LaunchStatus::timed_out, "no end after 120 s");
  end.regime_id.clear();
  store.finish_launch(launch, end, {});
  const Reader reader(folder.file("a.sqlite"));
  CHECK(text(reader, "SELECT status FROM v_cell WHERE collective = 'allreduce'") == "timed_out");
  CHECK(text(reader, "SELECT reason FROM v_cell WHERE collective = 'allreduce'") ==
        "no end after 120 s");
  CHECK(text(reader, "SELECT status FROM v_cell WHERE collective = 'broadcast'") == "unsupported");
  CHECK(integer(reader, "SELECT count(*) FROM launch_rank") == 2);
  CHECK(integer(reader, "SELECT regime_id IS NULL FROM launch") == 1);
}

TEST_CASE("a later attempt fixes its block, the first stays a row", "[B-08]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  const auto& group = plan.groups[0];
  store.begin_run(plan.run, plan.groups, plan.cells);
  store.finish_launch(store.begin_launch("run-1", make_start(group.id, 0)),
                      make_end(LaunchStatus::failed, "port in use"), {});
  const Reader reader(folder.file("a.sqlite"));
  CHECK(text(reader, "SELECT status FROM v_cell") == "failed");
  const auto retry = make_start(group.id, 0, 1);
  store.finish_launch(store.begin_launch("run-1", retry), make_end(),
                      make_records(plan.cells, group.id, retry.uuid, 2, 10, ten_and_rank));
  CHECK(text(reader, "SELECT status FROM v_cell") == "ok");
  CHECK(integer(reader, "SELECT launches FROM v_cell") == 1);
  CHECK(integer(reader, "SELECT count(*) FROM launch") == 2);
  CHECK(integer(reader, "SELECT sum(is_last_attempt) FROM v_launch") == 1);
}

TEST_CASE("the ranks' own run.json decides how ranks become one value", "[A-20]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
  auto start = make_start(plan.groups[0].id, 0);
  start.run_json = R"({"protocol":{"rank_aggregation":"min"}})";
  store.finish_launch(store.begin_launch("run-1", start), make_end(),
                      make_records(plan.cells, plan.groups[0].id, start.uuid, 2, 10, ten_and_rank));
  const Reader reader(folder.file("a.sqlite"));
  CHECK(text(reader, "SELECT rank_aggregation FROM measurement") == "min");
  CHECK(real(reader, "SELECT median_us FROM measurement") == 14.5);
}

TEST_CASE("a plan that contradicts itself is refused whole", "[G-01]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  plan.cells[0].group_id = "nowhere";
  CHECK_THROWS_WITH(store.begin_run(plan.run, plan.groups, plan.cells),
                    ContainsSubstring("names group \"nowhere\""));
  plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  plan.cells.push_back(plan.cells[0]);
  CHECK_THROWS_AS(store.begin_run(plan.run, plan.groups, plan.cells), Error);
  const Reader reader(folder.file("a.sqlite"));
  CHECK(integer(reader, "SELECT count(*) FROM run") == 0);
  CHECK(integer(reader, "SELECT count(*) FROM run_cell") == 0);
  CHECK_THROWS_WITH(store.begin_launch("run-9", make_start("x", 0)),
                    ContainsSubstring("has no run \"run-9\""));
}

TEST_CASE("a plan of 100,000 cells is stored quickly enough to wait for", "[G-01]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t i = 0; i < 25000; ++i) sizes.push_back(4 * (i + 1));
  const auto plan = make_plan("run-1", {"a", "b", "c", "d"}, {"allreduce"}, sizes);
  store.begin_run(plan.run, plan.groups, plan.cells);
  const Reader reader(folder.file("a.sqlite"));
  CHECK(integer(reader, "SELECT count(*) FROM v_cell WHERE status = 'planned'") == 100000);
}

TEST_CASE("foreign bytes in texts are stored as they are", "[G-01]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
  const std::string odd = "it's; DROP TABLE run; -- \xff\x01";
  const auto launch = store.begin_launch("run-1", make_start(plan.groups[0].id, 0));
  auto end = make_end(LaunchStatus::failed, odd);
  end.stderr_tail = std::string("a\0b", 3);
  store.finish_launch(launch, end, {});
  store.add_event("run-1", launch, "noise", odd);
  const Reader reader(folder.file("a.sqlite"));
  CHECK(text(reader, "SELECT reason FROM launch") == odd);
  CHECK(text(reader, "SELECT stderr_tail FROM launch").size() == 3);
  CHECK(text(reader, "SELECT message FROM event") == odd);
}
