#include <SQLiteCpp/SQLiteCpp.h>
#include <sys/resource.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <fstream>
#include <iterator>

#include "core/vocabulary/error.hpp"
#include "db/connection.hpp"
#include "db/foreign_run.hpp"
#include "db/merge_plan.hpp"
#include "db/migrations.hpp"
#include "db/reader.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

void measure(const std::string& path, const std::string& id, double time, int launches = 3) {
  Store store(path);
  const auto plan = make_plan(id, {"bare-metal", "cross-docker"}, {"allreduce"}, {1024, 2048});
  store.begin_run(plan.run, plan.groups, plan.cells);
  for (int block = 0; block < launches; ++block) {
    for (const auto& group : plan.groups) {
      const auto launch = store_launch(store, plan, group, block,
                                       [&](const CellInfo&, int, int) { return time + block; });
      store.add_event(id, launch, "noise", "a neighbour was loud");
    }
  }
  store.add_event(id, std::nullopt, "resumed", "for a test");
  store.end_run(id, "complete");
}

std::vector<std::string> table_names(SQLite::Database& db) {
  std::vector<std::string> names;
  SQLite::Statement rows(db,
                         "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE "
                         "'sqlite_%' AND name NOT IN ('meta', 'imported_run') ORDER BY 1");
  while (rows.executeStep()) names.push_back(rows.getColumn(0).getString());
  return names;
}

std::vector<std::pair<std::string, int>> counts(const std::string& path) {
  SQLite::Database db = open_for_reading(path);
  std::vector<std::pair<std::string, int>> result;
  for (const auto& name : table_names(db))
    result.emplace_back(name, db.execAndGet("SELECT count(*) FROM \"" + name + "\"").getInt());
  return result;
}

bool references_hold(const std::string& path) {
  SQLite::Database db = open_for_reading(path);
  SQLite::Statement check(db, "PRAGMA foreign_key_check");
  return !check.executeStep();
}

/// Everything that a reader sees of a run.
std::string content(const std::string& path, const std::string& run) {
  const Reader reader(path);
  std::string text;
  for (const char* sql :
       {"SELECT launch_id, cell_id, environment, block, median_us, regime_name FROM v_measurement "
        "WHERE run_id = ?1 ORDER BY 1, 2",
        "SELECT launch_id, cell_id, phase, rank, iteration, total_us FROM v_sample WHERE run_id = "
        "?1 ORDER BY 1, 2, 3, 4, 5",
        "SELECT r.host_json, r.argv_json, r.started_utc, e.spec_text FROM run r JOIN experiment e "
        "ON e.id = r.experiment_id WHERE r.uuid = ?1",
        "SELECT e.kind, e.message, l.uuid FROM event e JOIN run r ON r.id = e.run_id LEFT JOIN "
        "launch l ON l.id = e.launch_id WHERE r.uuid = ?1 ORDER BY 1, 3",
        "SELECT l.uuid, t.rank, t.transport, k.library FROM transport t JOIN launch_rank k ON "
        "k.launch_id = t.launch_id AND k.rank = t.rank JOIN launch l ON l.id = t.launch_id JOIN "
        "plan_group g ON g.id = l.group_id JOIN run r ON r.id = g.run_id WHERE r.uuid = ?1 "
        "ORDER BY 1, 2"}) {
    const Table table = reader.query(sql, {run});
    REQUIRE_FALSE(table.rows.empty());
    for (const auto& row : table.rows) {
      for (const auto& value : row) {
        text += std::visit(
            [](const auto& v) -> std::string {
              if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::monostate>) {
                return "-";
              } else if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::string>) {
                return v;
              } else {
                return std::to_string(v);
              }
            },
            value);
        text += '|';
      }
      text += '\n';
    }
  }
  return text;
}

ForeignRun foreign(const std::string& id) {
  const auto plan = make_plan(id, {"unknown"}, {"allreduce"}, {1024, 2048});
  ForeignRun run;
  run.run = plan.run;
  run.groups = plan.groups;
  run.cells = plan.cells;
  ForeignLaunch launch;
  launch.group_id = plan.groups[0].id;
  ForeignFigure first;
  first.cell_id = plan.cells[0].id;
  first.time_us = 26.25;
  first.calls = 20;
  first.checked = 256;
  first.reported_json = R"({"time":26.25})";
  ForeignFigure second = first;
  second.cell_id = plan.cells[1].id;
  second.status = CellStatus::failed;
  second.reason = "3 wrong values";
  second.wrong = 3;
  launch.figures = {first, second};
  run.launches = {launch};
  run.started_utc = "2024-05-31T23:59:59.000Z";
  run.format = "nccl-tests";
  run.source = "table.txt";
  run.sha256 = "abc";
  return run;
}

/// The plan of a run of one cell, run-9, that is stored as begun.
auto begun_run(Store& store) {
  auto plan = make_plan("run-9", {"bare-metal"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
  return plan;
}

}  // namespace

TEST_CASE("a database comes with every row, references intact, once", "[G-01]") {
  const ScratchFolder folder;
  const auto mine = folder.file("mine.sqlite");
  const auto other = folder.file("other.sqlite");
  measure(mine, "run-1", 10);
  measure(other, "run-8", 20);
  measure(other, "run-9", 30, 5);
  const auto before = counts(mine);
  const auto from = counts(other);
  {
    Store store(mine);
    const auto summary = store.merge(other);
    CHECK(summary.runs == std::vector<std::string>{"run-8", "run-9"});
    CHECK(summary.already_there == 0);
  }
  CHECK(references_hold(mine));
  const auto after = counts(mine);
  REQUIRE(after.size() == before.size());
  for (std::size_t i = 0; i < after.size(); ++i) {
    const auto& [table, rows] = after[i];
    INFO(table);
    // Equal experiments, profiles and regimes are one row.
    const bool shared = table == "experiment" || table == "profile" || table == "regime";
    CHECK(rows == (shared ? before[i].second : before[i].second + from[i].second));
  }
  CHECK(content(mine, "run-8") == content(other, "run-8"));
  CHECK(content(mine, "run-9") == content(other, "run-9"));

  Store store(mine);
  const auto again = store.merge(other);
  CHECK(again.runs.empty());
  CHECK(again.already_there == 2);
  CHECK(again.rows == 0);
  CHECK(counts(mine) == after);
}

TEST_CASE("a database whose rows refer to nothing is refused, not merged in part", "[safety]") {
  for (const char* damage :
       {"UPDATE launch SET group_id = 99999 WHERE id = 1", "DELETE FROM launch_rank"}) {
    INFO(damage);
    const ScratchFolder folder;
    const auto other = folder.file("other.sqlite");
    const auto mine = folder.file("mine.sqlite");
    measure(other, "run-9", 10);
    measure(mine, "run-1", 10);
    SQLite::Database(other, SQLite::OPEN_READWRITE).exec(damage);
    const auto before = counts(mine);
    Store store(mine);
    try {
      store.merge(other);
      FAIL_CHECK("merged");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::data);
      CHECK_THAT(error.what(), ContainsSubstring("other.sqlite is damaged"));
    }
    CHECK(counts(mine) == before);
  }
}

TEST_CASE("a run that was resumed after it had been merged comes again, whole", "[safety]") {
  const ScratchFolder folder;
  const auto other = folder.file("other.sqlite");
  const auto mine = folder.file("mine.sqlite");
  const auto plan = make_plan("run-9", {"bare-metal"}, {"allreduce"}, {1024});
  const auto launch = [&](Store& store, int block) {
    store_launch(store, plan, plan.groups[0], block, [](const CellInfo&, int, int) { return 5.0; });
  };
  measure(mine, "run-1", 10);
  {
    Store measuring(other);
    measuring.begin_run(plan.run, plan.groups, plan.cells);
    launch(measuring, 0);
    measuring.add_event("run-9", std::nullopt, "noise", "a neighbour was loud");
    measuring.end_run("run-9", "interrupted");
  }
  const auto first = content(mine, "run-1");
  {
    Store store(mine);
    CHECK(store.merge(other).runs.size() == 1);
  }
  std::filesystem::copy_file(mine, folder.file("resumed-here.sqlite"));
  {
    Store resumed(other);
    launch(resumed, 1);
    launch(resumed, 2);
    resumed.end_run("run-9", "complete");
  }
  {
    Store store(mine);
    const auto summary = store.merge(other);
    CHECK(summary.runs == std::vector<std::string>{"run-9"});
    CHECK(summary.grown == summary.runs);
    CHECK(summary.already_there == 0);
    CHECK(store.merge(other).already_there == 1);
  }
  CHECK(references_hold(mine));
  CHECK(content(mine, "run-9") == content(other, "run-9"));
  CHECK(content(mine, "run-1") == first);

  // Where both went on, neither's launches are taken out.
  const auto here = folder.file("resumed-here.sqlite");
  Store store(here);
  launch(store, 3);
  store.end_run("run-9", "complete");
  const auto before = content(here, "run-9");
  const auto summary = store.merge(other);
  CHECK(summary.diverged == 1);
  CHECK(summary.runs.empty());
  CHECK(content(here, "run-9") == before);
}

TEST_CASE("a merged run can be told from one measured here, and its copy is gone", "[G-01]") {
  const ScratchFolder folder;
  measure(folder.file("other.sqlite"), "run-9", 30);
  Store store(folder.file("mine.sqlite"));
  store.merge(folder.file("other.sqlite"));
  const Reader reader(folder.file("mine.sqlite"));
  const auto row =
      reader.query("SELECT imported_format, run_status FROM v_run WHERE run_id = 'run-9'").rows[0];
  CHECK(std::get<std::string>(row[0]) == "dynamiccl");
  CHECK(std::get<std::string>(row[1]) == "complete");
  CHECK_THROWS_AS(Reader(folder.file("mine.sqlite.merging")), Error);
}

TEST_CASE("what still lies in the other database's WAL comes along", "[G-01]") {
  const ScratchFolder folder;
  const auto other = folder.file("other.sqlite");
  Store writing(other);
  const auto plan = begun_run(writing);
  store_launch(writing, plan, plan.groups[0], 0, [](const CellInfo&, int, int) { return 5.0; });
  Store store(folder.file("mine.sqlite"));
  // It is still being measured, by this process.
  CHECK(store.merge(other).running == 1);
  writing.add_event("run-9", std::nullopt, "resumed", "for a test");
  writing.end_run("run-9", "complete");
  CHECK(store.merge(other).runs.size() == 1);
  CHECK(content(folder.file("mine.sqlite"), "run-9") == content(other, "run-9"));
}

TEST_CASE("a run that goes on over there is said to be measured, not to be all here", "[G-01]") {
  const ScratchFolder folder;
  const auto other = folder.file("other.sqlite");
  Store writing(other);
  const auto plan = begun_run(writing);
  writing.end_run("run-9", "interrupted");
  Store store(folder.file("mine.sqlite"));
  CHECK(store.merge(other).runs.size() == 1);
  writing.resume_run("run-9");
  store_launch(writing, plan, plan.groups[0], 0, [](const CellInfo&, int, int) { return 5.0; });
  const auto summary = store.merge(other);
  CHECK(summary.running == 1);
  CHECK(summary.already_there == 0);
}

TEST_CASE("a killed run comes along as interrupted, its database untouched", "[G-01]") {
  const ScratchFolder folder;
  const auto other = folder.file("other.sqlite");
  {
    Store killed(other);
    const auto plan = begun_run(killed);
    store_launch(killed, plan, plan.groups[0], 0, [](const CellInfo&, int, int) { return 5.0; });
  }
  SQLite::Database(other, SQLite::OPEN_READWRITE)
      .exec("UPDATE run SET owner_start_ticks = owner_start_ticks + 1");
  Store store(folder.file("mine.sqlite"));
  const auto summary = store.merge(other);
  CHECK(summary.running == 0);
  REQUIRE(summary.runs == std::vector<std::string>{"run-9"});
  CHECK(open_for_reading(folder.file("mine.sqlite"))
            .execAndGet("SELECT status FROM run")
            .getString() == "interrupted");
  CHECK(open_for_reading(other).execAndGet("SELECT status FROM run").getString() == "running");
}

TEST_CASE("an older database is brought forward in a copy, itself left as it was", "[G-01]") {
  const ScratchFolder folder;
  const auto other = folder.file("old.sqlite");
  {
    std::ifstream file(DYNAMICCL_SOURCE_DIR "/db/migrations/0001_baseline.sql");
    const std::string baseline((std::istreambuf_iterator<char>(file)), {});
    SQLite::Database old(other, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    old.exec(baseline);
    old.exec("PRAGMA application_id = " + std::to_string(kApplicationId));
    old.exec("PRAGMA user_version = 1");
  }
  Store store(folder.file("mine.sqlite"));
  CHECK(store.merge(other).runs.empty());
  CHECK(open_for_reading(other).execAndGet("PRAGMA user_version").getInt() == 1);
}

TEST_CASE("what is no database of ours, or this one, is refused", "[G-01]") {
  const ScratchFolder folder;
  const auto mine = folder.file("mine.sqlite");
  Store store(mine);
  CHECK_THROWS_WITH(store.merge(mine), ContainsSubstring("would be merged into"));
  CHECK_THROWS_WITH(store.merge(folder.file("none.sqlite")), ContainsSubstring("does not exist"));
}

TEST_CASE("every table of the schema has its way into another database", "[G-01]") {
  SQLite::Database db(":memory:", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  migrate(db, "memory", current_schema());
  const auto plan = merge_plan(db);
  CHECK(plan.size() == table_names(db).size() + 1);
  for (const auto& table : plan) {
    INFO(table.name);
    CHECK(table.owned == table.known_by.empty());
  }
}

TEST_CASE("a foreign table is stored as it is, once, and a wrong value fails its cell", "[G-01]") {
  const ScratchFolder folder;
  const auto path = folder.file("mine.sqlite");
  Store store(path);
  CHECK(store.import_run(foreign("run-f")));
  CHECK_FALSE(store.import_run(foreign("run-f")));
  const Reader reader(path);
  const auto rows = reader
                        .query(
                            "SELECT v.median_us, v.cadence, v.batch, v.rank_aggregation, "
                            "v.counts, v.reason, i.reported_json FROM v_measurement v JOIN "
                            "imported_measurement i ON i.measurement_id = v.measurement_row "
                            "ORDER BY v.size_bytes")
                        .rows;
  REQUIRE(rows.size() == 2);
  CHECK(std::get<double>(rows[0][0]) == 26.25);
  CHECK(std::get<std::string>(rows[0][1]) == "batched");
  CHECK(std::get<std::int64_t>(rows[0][2]) == 20);
  CHECK(std::get<std::string>(rows[0][3]) == "mean");
  CHECK(std::get<std::int64_t>(rows[0][4]) == 1);
  CHECK(std::get<std::string>(rows[0][6]) == R"({"time":26.25})");
  CHECK(std::get<std::int64_t>(rows[1][4]) == 0);
  CHECK(std::get<std::string>(rows[1][5]) == "3 wrong values");
  CHECK(references_hold(path));
}

TEST_CASE("an import that finds no space says to give it again: there is no run to resume") {
  const ScratchFolder folder;
  Store store(folder.file("mine.sqlite"));
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handled = signal(SIGXFSZ, SIG_IGN);
  const rlimit little{4096, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &little) == 0);
  std::string said;
  try {
    store.import_run(foreign("run-f"));
  } catch (const Error& error) {
    said = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handled);
  CHECK_THAT(said, ContainsSubstring("give the command again") && !ContainsSubstring("--resume"));
  CHECK(store.import_run(foreign("run-f")));
}
