#include "db/reader.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>

#include "core/vocabulary/error.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("free SQL that writes is refused with a clear message", "[G-01]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
  const Reader reader(folder.file("a.sqlite"));
  const auto copy = folder.file("copy.sqlite");
  for (const std::string& sql :
       {std::string("DELETE FROM run"), std::string("UPDATE run SET name = 'x'"),
        std::string("INSERT INTO meta VALUES ('a', 'b')"), std::string("DROP TABLE sample"),
        std::string("CREATE TABLE t (x)"), std::string("CREATE TEMP TABLE t (x)"),
        "VACUUM INTO '" + copy + "'", "ATTACH '" + copy + "' AS other",
        std::string("PRAGMA query_only = OFF"), std::string("PRAGMA journal_mode = DELETE"),
        std::string("UPDATE sqlite_master SET sql = ''"), std::string("BEGIN IMMEDIATE"),
        std::string("WITH r AS (SELECT 1) DELETE FROM run")}) {
    INFO(sql);
    CHECK_THROWS_AS(reader.query(sql), Error);
    if (sql.rfind("UPDATE sqlite_master", 0) != 0) {
      CHECK_THROWS_WITH(reader.query(sql), ContainsSubstring("queries only read"));
    }
  }
  CHECK_FALSE(std::filesystem::exists(copy));
  CHECK(std::get<std::string>(reader.query("SELECT name FROM run").rows[0][0]) == "synthetic");
}

TEST_CASE("wrong SQL gives SQLite's message and where to look things up") {
  const ScratchFolder folder;
  const Store store(folder.file("a.sqlite"));
  const Reader reader(folder.file("a.sqlite"));
  CHECK_THROWS_WITH(
      reader.query("SELECT colour FROM run"),
      ContainsSubstring("no such column: colour") && ContainsSubstring("dynamiccl query schema"));
  CHECK_THROWS_WITH(reader.query("SELEC 1"), ContainsSubstring("syntax error"));
  CHECK_THROWS_WITH(reader.query("SELECT 1; SELECT 2"), ContainsSubstring("one statement"));
  CHECK(reader.query("SELECT ';' AS a; -- done").rows.size() == 1);
  CHECK(reader.query("SELECT 1 AS a;\n").rows.size() == 1);
}

TEST_CASE("what is empty around a statement is no second one, and alone it is no statement") {
  const ScratchFolder folder;
  const Store store(folder.file("a.sqlite"));
  const Reader reader(folder.file("a.sqlite"));
  for (const char* sql : {"SELECT 1 AS a;;", "SELECT 1 AS a; /* x */", "SELECT 1 AS a; -- x\n ; /*",
                          "; -- x\n/* ; */ SELECT 1 AS a", "SELECT 1 AS a /* ; */;\t"}) {
    INFO(sql);
    CHECK(reader.query(sql).rows.size() == 1);
  }
  for (const char* sql : {"", " ", ";", "-- only", "/* only */ ;", "/* open", "--"}) {
    INFO(sql);
    CHECK_THROWS_WITH(reader.query(sql), ContainsSubstring("there is no statement"));
  }
  for (const char* sql : {"SELECT 1; -- x\nSELECT 2", "SELECT 1; /* x */ DELETE FROM run",
                          "; SELECT 1;; SELECT 2", "SELECT 1; /* x */ */"}) {
    INFO(sql);
    CHECK_THROWS_WITH(reader.query(sql), ContainsSubstring("one statement at a time"));
  }
}

TEST_CASE("values come out with their types and parameters go in with theirs") {
  const ScratchFolder folder;
  const Store store(folder.file("a.sqlite"));
  const Reader reader(folder.file("a.sqlite"));
  const auto table = reader.query("SELECT ?1 AS a, ?2 AS b, ?3 AS c, ?4 AS d",
                                  {std::int64_t{1} << 40, 0.5, std::string("x'; DROP"), Value{}});
  CHECK(table.columns == std::vector<std::string>{"a", "b", "c", "d"});
  CHECK(table.rows[0] ==
        std::vector<Value>{std::int64_t{1} << 40, 0.5, std::string("x'; DROP"), Value{}});
  CHECK_THROWS_AS(reader.query("SELECT 1", {std::int64_t{1}}), Error);
}

TEST_CASE("a reader sees whole launches while a writer writes", "[G-01]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
  const Reader reader(folder.file("a.sqlite"));
  for (int block = 0; block < 20; ++block) {
    store_launch(store, plan, plan.groups[0], block, [](const CellInfo&, int, int) { return 5.0; });
    const auto table = reader.query(
        "SELECT (SELECT count(*) FROM launch), (SELECT count(*) FROM sample), "
        "(SELECT count(*) FROM launch WHERE status = 'ok')");
    const auto launches = std::get<std::int64_t>(table.rows[0][0]);
    CHECK(launches == block + 1);
    CHECK(std::get<std::int64_t>(table.rows[0][1]) == 24 * launches);
    CHECK(std::get<std::int64_t>(table.rows[0][2]) == launches);
  }
}

TEST_CASE("last is the newest that was measured by run, not a search or a try that failed") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  const auto begin = [&](const char* id, const char* mark, const char* status) {
    auto plan = make_plan(id, {"bare-metal"}, {"allreduce"}, {1024});
    if (*mark != '\0') plan.run.overrides = {mark};
    store.begin_run(plan.run, plan.groups, plan.cells);
    store.end_run(id, status);
  };
  begin("measured", "", "complete");
  begin("searched", "tune=live", "complete");
  begin("looked", "gate=again", "complete");
  for (const char* of : {"", "tune=live"}) {
    auto plan = make_plan(std::string("repeated") + of, {"bare-metal"}, {"allreduce"}, {1024});
    plan.run.replay_of = "a launch";
    if (*of != '\0') plan.run.overrides = {of};
    plan.run.overrides.emplace_back("replay=0");
    store.begin_run(plan.run, plan.groups, plan.cells);
    store.end_run(plan.run.id, "complete");
  }
  auto proof = make_plan("proved", {"bare-metal"}, {"allreduce"}, {1024});
  proof.run.spec_path = "doctor --prove small-shm";
  store.begin_run(proof.run, proof.groups, proof.cells);
  store.end_run("proved", "complete");
  begin("tried", "tune=job", "failed");
  const Reader reader(folder.file("a.sqlite"));
  CHECK(reader.resolve_run("last") == "measured");
  CHECK(reader.resolve_run("last-tune") == "searched");
  CHECK(reader.newest_run() == "proved");
  CHECK_THROWS_WITH(reader.resolve_run("last-import"), ContainsSubstring("only 0 runs of import"));
  CHECK_THROWS_WITH(reader.resolve_run("last~1"),
                    ContainsSubstring("holds only 1 run that `run` measured, of 7 in all"));
}

TEST_CASE("run names: unique prefixes, and what is ambiguous", "[G-01]") {
  const ScratchFolder folder;
  Store store(folder.file("a.sqlite"));
  for (const char* id : {"abc-1", "abd-2"}) {
    const auto plan = make_plan(id, {"bare-metal"}, {"allreduce"}, {1024});
    store.begin_run(plan.run, plan.groups, plan.cells);
  }
  const Reader reader(folder.file("a.sqlite"));
  CHECK(reader.resolve_run("abc") == "abc-1");
  CHECK(reader.resolve_run("last~0") == "abd-2");
  CHECK_THROWS_WITH(reader.resolve_run("ab"),
                    ContainsSubstring("fits 2 runs") && ContainsSubstring("more letters"));
  CHECK_THROWS_WITH(reader.resolve_run(""), ContainsSubstring("no run"));
  CHECK_THROWS_WITH(reader.resolve_run("last~x"), ContainsSubstring("last~1"));
  CHECK_THROWS_WITH(reader.resolve_run("last-tune"), ContainsSubstring("only 0 runs of tune"));
}
