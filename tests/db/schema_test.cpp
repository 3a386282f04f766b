#include <SQLiteCpp/SQLiteCpp.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>
#include <sstream>

#include "core/vocabulary/error.hpp"
#include "db/connection.hpp"
#include "db/migrations.hpp"
#include "db/own_schema.hpp"
#include "db/reader.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string source_file(const std::string& path) {
  std::ifstream file(std::string(DYNAMICCL_SOURCE_DIR) + "/" + path);
  REQUIRE(file.good());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void create(const std::string& path, const std::string& sql) {
  SQLite::Database db(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  db.exec(sql);
}

/// Everything that defines a database, told as rows, without the text it was made from.
std::vector<std::string> shape_of(SQLite::Database& db) {
  SQLite::Statement rows(
      db,
      "SELECT 'column ' || m.name || ' ' || p.cid || ' ' || p.name || ' ' || p.type || ' ' || "
      "  p.\"notnull\" || ' ' || coalesce(p.dflt_value, '') || ' ' || p.pk "
      "FROM sqlite_master m, pragma_table_info(m.name) p WHERE m.type = 'table' "
      "UNION ALL SELECT 'key ' || m.name || ' ' || f.\"table\" || ' ' || f.\"from\" || ' ' || "
      "  coalesce(f.\"to\", '') FROM sqlite_master m, pragma_foreign_key_list(m.name) f "
      "UNION ALL SELECT 'index ' || m.name || ' ' || i.name || ' ' || i.\"unique\" || ' ' || "
      "  i.partial FROM sqlite_master m, pragma_index_list(m.name) i "
      "UNION ALL SELECT 'kind ' || name || ' ' || wr || ' ' || strict FROM pragma_table_list "
      "  WHERE schema = 'main' AND type = 'table' "
      "ORDER BY 1");
  std::vector<std::string> shape;
  while (rows.executeStep()) shape.push_back(rows.getColumn(0).getString());
  return shape;
}

/// Takes back what versions 9 and 10 added; views are made again by whoever opens the database.
void undo_printed_resolution(SQLite::Database& db) {
  std::vector<std::string> views;
  SQLite::Statement read(db, "SELECT name FROM sqlite_schema WHERE type = 'view'");
  while (read.executeStep()) views.push_back(read.getColumn(0).getString());
  read.reset();
  for (const auto& view : views) db.exec("DROP VIEW " + view);
  db.exec("ALTER TABLE imported_measurement DROP COLUMN resolution_us; DROP TABLE imported_run");
  execute_one(db, source_file("db/migrations/0004_imports.sql"));  // its first table
  db.exec("ALTER TABLE measurement DROP COLUMN waited_share");
  db.exec("ALTER TABLE measurement DROP COLUMN unwaited_us");
  db.exec("ALTER TABLE sample DROP COLUMN waited_us");
}

}  // namespace

TEST_CASE("every column of every table and view says what it means", "[G-01][G-02]") {
  for (const auto& [path, kind] :
       {std::pair("db/schema.sql", "CREATE TABLE "), std::pair("db/views.sql", "CREATE VIEW ")}) {
    SQLite::Database db(":memory:", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    const bool of_views = std::string(path) == "db/views.sql";
    const auto text = of_views ? std::string(current_schema().views) : source_file(path);
    db.exec(source_file("db/schema.sql"));
    if (of_views) db.exec(text);
    SQLite::Statement columns(db,
                              "SELECT m.name, p.name FROM sqlite_master m, "
                              "pragma_table_info(m.name) p WHERE m.type = ?");
    columns.bind(1, of_views ? "view" : "table");
    int seen = 0;
    while (columns.executeStep()) {
      const auto relation = columns.getColumn(0).getString();
      const auto column = columns.getColumn(1).getString();
      INFO(relation << "." << column);
      const auto begin = text.find(kind + relation + (kind[7] == 'T' ? " (" : " AS"));
      REQUIRE(begin != std::string::npos);
      std::istringstream lines(text.substr(begin, text.find(";\n", begin) - begin));
      bool documented = false;
      for (std::string line; std::getline(lines, line);) {
        const auto comment = line.find("-- ");
        if (comment == std::string::npos || comment + 4 > line.size()) continue;
        const auto before = " " + line.substr(0, comment);
        const bool defines = before.find("  " + column + " ") != std::string::npos ||
                             before.find("AS " + column + ",") != std::string::npos ||
                             before.find("AS " + column + " ") != std::string::npos;
        documented = documented || defines;
      }
      CHECK(documented);
      ++seen;
    }
    CHECK(seen > 50);
  }
}

TEST_CASE("views say of methods, ways to wait and codecs what their rows say") {
  SQLite::Database db(":memory:", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  db.exec(source_file("db/schema.sql"));
  db.exec(std::string(current_schema().views));
  const auto names = [&](const std::string& from) {
    return db.execAndGet("SELECT group_concat(column1) FROM (SELECT " + from + ")").getString();
  };
  CHECK(names("method AS column1 FROM v_training_method WHERE gossip") == "d-psgd");
  CHECK(names("method AS column1 FROM v_training_method WHERE after_backward") ==
        "bsp-ps,bsp-a2a,d-psgd");
  CHECK(names("method AS column1 FROM v_training_method WHERE split") == "dear");
  CHECK(names("method AS column1 FROM v_training_method WHERE method LIKE '%-ps' AND NOT served OR "
              "method LIKE '%-a2a' AND served")
            .empty());
  CHECK(names("method AS column1 FROM v_training_method WHERE engine") == "ddp");
  CHECK(names("synchronisation AS column1 FROM v_synchronisation WHERE usual") == "bsp");
  CHECK(names("synchronisation AS column1 FROM v_synchronisation WHERE leaves_out") == "backup");
  CHECK(names("synchronisation AS column1 FROM v_synchronisation WHERE rounds_differ") ==
        "adacomm");
  CHECK(names("compression AS column1 FROM v_codec WHERE by_bits") == "qsgd,diana");
  CHECK(names("compression || bits AS column1 FROM v_codec WHERE bits IS NOT NULL") ==
        "fp1616,bf1616,int88,onebit1,ef-sign1,signsgd1,terngrad2,natural8,3lc1.6");
  CHECK(names("compression AS column1 FROM v_codec WHERE sparse AND by_density AND NOT merged") ==
        "topk,randomk,dgc,stc,sbc,cocktail");
  CHECK(names("compression AS column1 FROM v_codec WHERE marked") == "cocktail");
}

TEST_CASE("tables are strict and their references hold") {
  SQLite::Database db(":memory:", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  db.exec(source_file("db/schema.sql"));
  CHECK(db.execAndGet("SELECT count(*) FROM pragma_table_list WHERE schema = 'main' AND type = "
                      "'table' AND strict = 0 AND name NOT LIKE 'sqlite_%'")
            .getInt() == 0);
  db.exec("PRAGMA foreign_keys=ON");
  CHECK_THROWS(
      db.exec("INSERT INTO sample VALUES (1,1,0,0,0.0,1.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL)"));
}

TEST_CASE("a database of the baseline migrates to the shape of a new one") {
  SQLite::Database old(":memory:", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  old.exec(source_file("db/migrations/0001_baseline.sql"));
  old.exec("PRAGMA user_version = 1");
  migrate(old, "old", current_schema());
  SQLite::Database fresh(":memory:", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  migrate(fresh, "fresh", current_schema());
  CHECK(shape_of(old) == shape_of(fresh));
  // Else it would be refused at its next opening.
  CHECK_NOTHROW(require_own_schema(old, "old", current_schema()));
  CHECK(old.execAndGet("PRAGMA user_version").getInt() == current_schema().version());
}

TEST_CASE("an older database is brought forward with its rows, in one step or not at all") {
  const ScratchFolder folder;
  const auto path = folder.file("old.sqlite");
  {
    Store store(path);
    const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
    store.begin_run(plan.run, plan.groups, plan.cells);
    store_launch(store, plan, plan.groups[0], 0, [](const CellInfo&, int, int) { return 5.0; });
  }
  const int now = current_schema().version();
  const std::string new_views =
      std::string(current_schema().views) + "CREATE VIEW v_colours AS SELECT colour FROM run;";
  SchemaSet next = current_schema();
  const std::string new_schema = std::string(current_schema().schema) +
                                 "ALTER TABLE run ADD COLUMN colour TEXT DEFAULT 'blue';";
  next.views = new_views;
  next.schema = new_schema;
  next.migrations.push_back({now + 1, "ALTER TABLE run ADD COLUMN colour TEXT DEFAULT 'blue';"});

  SECTION("the step is applied, rows stay") {
    SQLite::Database db = open_for_writing(path);
    migrate(db, path, next);
    CHECK(db.execAndGet("PRAGMA user_version").getInt() == now + 1);
    CHECK(SQLite::Database(path).execAndGet("SELECT colour FROM v_colours").getString() == "blue");
    CHECK(db.execAndGet("SELECT count(*) FROM sample").getInt() == 24);
    CHECK(db.execAndGet("PRAGMA foreign_keys").getInt() == 1);
    migrate(db, path, next);
    CHECK(db.execAndGet("PRAGMA user_version").getInt() == now + 1);
  }
  SECTION("a step that fails leaves everything as it was") {
    next.migrations.push_back({now + 2, "ALTER TABLE no_such_table ADD COLUMN x TEXT;"});
    {
      SQLite::Database db = open_for_writing(path);
      CHECK_THROWS_WITH(migrate(db, path, next), ContainsSubstring("migrating failed"));
    }
    Store store(path);
    CHECK(store.finished_launches("run-1").size() == 1);
    const Reader reader(path);
    CHECK_THROWS_WITH(reader.query("SELECT colour FROM run"), ContainsSubstring("no such column"));
  }
  SECTION("a step that breaks a reference leaves everything as it was") {
    next.migrations.back().sql = "DELETE FROM measurement;";
    {
      SQLite::Database db = open_for_writing(path);
      CHECK_THROWS_WITH(migrate(db, path, next), ContainsSubstring("broke a reference"));
    }
    CHECK(std::get<std::int64_t>(
              Reader(path).query("SELECT count(*) FROM measurement").rows[0][0]) == 1);
  }
}

TEST_CASE("C2C that was the formula's again becomes unknown when bytes are counted", "[E-186]") {
  const ScratchFolder folder;
  const auto path = folder.file("six.sqlite");
  TrainingFigures figures;
  figures.role = "worker";
  figures.wire_bytes = 4096;
  figures.c2c_measured = 0.5;
  {
    Store store(path);
    store_training(store,
                   {{{"bsp-a2a", R"({"model":"mlp","batch":"8"})"},
                     {"dear", R"({"model":"mlp","batch":"8"})"},
                     {"mg-wfbp", R"({"model":"mlp","batch":"8","packing":"exponents"})"}},
                    {9, 9, 9}},
                   figures, 1);
  }
  {
    // As version 6 left it.
    SQLite::Database db(path, SQLite::OPEN_READWRITE);
    undo_printed_resolution(db);
    db.exec("ALTER TABLE training RENAME TO later;");
    db.exec(source_file("db/migrations/0006_training.sql"));
    db.exec(
        "INSERT INTO training SELECT measurement_id, rank, role, single_us, compute_us, "
        "forward_us, backward_us, update_us, exposed_us, predicted_us, wire_bytes, c2c_predicted, "
        "c2c_measured, intensity, first_loss, last_loss, accuracy, max_difference, "
        "parameters_sha256, details_json FROM later; DROP TABLE later; PRAGMA user_version = 6");
  }
  { const Store store(path); }
  const Table table = Reader(path).query(
      "SELECT method, c2c_measured, wire_bytes, counted_bytes FROM v_training ORDER BY method");
  REQUIRE(table.rows.size() == 3);
  CHECK(table.rows[0] == std::vector<Value>{"bsp-a2a", Value{}, 4096.0, Value{}});
  CHECK(table.rows[1] == std::vector<Value>{"dear", 0.5, 4096.0, Value{}});
  CHECK(table.rows[2] == std::vector<Value>{"mg-wfbp", 0.5, 4096.0, Value{}});
}

TEST_CASE("a server's waiting leaves the communication of steps that are stored", "[A-13]") {
  const ScratchFolder folder;
  const auto path = folder.file("seven.sqlite");
  {
    Store store(path);
    auto plan = make_plan("run-1", {"bare-metal"}, {"training"}, {1024}, 3);
    plan.run.protocol_json = R"({"rank_aggregation":"mean"})";
    store.begin_run(plan.run, plan.groups, plan.cells);
    const auto start = make_start(plan.groups[0].id, 0);
    const auto launch = store.begin_launch(plan.run.id, start);
    // The first rank serves; iteration 0 of the workers takes 20 and 30 us, the last 29 and 39.
    auto files =
        make_records(plan.cells, plan.groups[0].id, start.uuid, 3, 10,
                     [](const CellInfo&, int rank, int i) { return 10.0 + 10 * rank + i; });
    for (std::size_t rank = 0; rank < files.size(); ++rank)
      for (auto& record : files[rank].records)
        if (auto* cell = std::get_if<CellRecord>(&record)) {
          cell->training.emplace().role = rank == 0 ? "server" : "worker";
          cell->measured.compute_us = cell->measured.h2d_us;
        }
    store.finish_launch(launch, make_end(), files);
  }
  const std::string parts =
      "SELECT rank_aggregation, collective_us, compute_us, median_us FROM measurement";
  const auto now = Reader(path).query(parts).rows;
  REQUIRE(now.size() == 1);
  CHECK(now[0] == std::vector<Value>{"mean", 0.75 * 29.5, 0.25 * 29.5, 24.5});
  {
    SQLite::Database db(path, SQLite::OPEN_READWRITE);
    undo_printed_resolution(db);
    db.exec("UPDATE measurement SET collective_us = 1, compute_us = 2; PRAGMA user_version = 7");
  }
  { const Store store(path); }
  CHECK(Reader(path).query(parts).rows == now);
}

TEST_CASE("an older database is read as one of today, and stays as it is") {
  const ScratchFolder folder;
  const auto path = folder.file("older.sqlite");
  {
    Store store(path);
    const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
    store.begin_run(plan.run, plan.groups, plan.cells);
  }
  {
    SQLite::Database db(path, SQLite::OPEN_READWRITE);
    undo_printed_resolution(db);
    db.exec("PRAGMA user_version = 7; PRAGMA wal_checkpoint(TRUNCATE)");
  }
  const auto bytes = [&] {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  };
  const auto before = bytes();
  CHECK(Reader(path).query("SELECT waited_share FROM v_measurement").rows.empty());
  CHECK(Reader(path).resolve_run("last") == "run-1");
  CHECK(bytes() == before);
}

TEST_CASE("a newer database is refused and left untouched") {
  const ScratchFolder folder;
  const auto path = folder.file("newer.sqlite");
  { const Store store(path); }
  create(path, "PRAGMA user_version = 999");
  CHECK_THROWS_WITH(Store(path), ContainsSubstring("its schema has version 999"));
  CHECK_THROWS_WITH(Reader(path), ContainsSubstring("its schema has version 999"));
}

TEST_CASE("files that are no database of ours are refused and left untouched") {
  const ScratchFolder folder;
  const auto garbage = folder.file("garbage.sqlite");
  // Longer than a page, shorter, and a byte.
  for (const std::size_t length : {5000U, 50U, 1U}) {
    const std::string bytes = std::string("this is no database").substr(0, length) +
                              std::string(length - std::min<std::size_t>(length, 19), 'x');
    std::ofstream(garbage, std::ios::trunc) << bytes;
    CHECK_THROWS_WITH(Store(garbage), ContainsSubstring("the file is no database"));
    CHECK_THROWS_WITH(Reader(garbage), ContainsSubstring("the file is no database"));
    std::ostringstream after;
    after << std::ifstream(garbage).rdbuf();
    CHECK(after.str() == bytes);
  }

  const auto foreign = folder.file("foreign.sqlite");
  create(foreign, "CREATE TABLE theirs (x)");
  CHECK_THROWS_WITH(Store(foreign), ContainsSubstring("of another program"));
  CHECK_THROWS_WITH(Reader(foreign), ContainsSubstring("not written by DynamICCL"));

  // What a command that failed before its first write, or `touch`, leaves: `run` takes it.
  const auto empty = folder.file("empty.sqlite");
  std::ofstream(empty).close();
  CHECK_THROWS_WITH(
      Reader(empty),
      ContainsSubstring("is empty (0 bytes); `dynamiccl run FILE --db " + empty + "` fills it"));
  CHECK_NOTHROW(Store(empty));
  CHECK_NOTHROW(Reader(empty));

  CHECK_THROWS_WITH(Reader(folder.file("none.sqlite")), ContainsSubstring("does not exist yet"));
  CHECK_THROWS_WITH(Store(folder.file("no/such/folder.sqlite")),
                    ContainsSubstring("its folder") && ContainsSubstring("does not exist"));
  CHECK_THROWS_WITH(Store(folder.file("")), ContainsSubstring("is a folder"));
}

TEST_CASE("changed views are made anew without a new version") {
  const ScratchFolder folder;
  const auto path = folder.file("a.sqlite");
  { const Store store(path); }
  SchemaSet other = current_schema();
  other.views = "CREATE VIEW v_other AS SELECT 1 AS one;";
  {
    SQLite::Database db = open_for_writing(path);
    migrate(db, path, other);
    CHECK(SQLite::Database(path).execAndGet("SELECT one FROM v_other").getInt() == 1);
  }
  const Store store(path);
  CHECK_NOTHROW(Reader(path).query("SELECT * FROM v_cell"));
  CHECK_THROWS(Reader(path).query("SELECT * FROM v_other"));
}

TEST_CASE("a reader has this program's views in another build's file, which it does not write") {
  const ScratchFolder folder;
  const auto path = folder.file("a.sqlite");
  {
    Store store(path);
    TrainingFigures figures;
    figures.role = "worker";
    store_training(store, {{{"dear", R"({"model":"mlp","batch":"8"})"}}, {9}}, figures, 1);
  }
  const std::string rows = "SELECT task, trained_us, step_us FROM v_training";
  const auto now = Reader(path).query(rows).rows;
  REQUIRE(now.size() == 1);
  SchemaSet other = current_schema();
  other.views =
      "CREATE VIEW v_training AS SELECT measurement_id AS measurement_row FROM training;"
      "CREATE VIEW v_other AS SELECT 1 AS one;";
  {
    SQLite::Database db = open_for_writing(path);
    migrate(db, path, other);
  }
  const auto bytes_of_file = [&] {
    std::ostringstream bytes;
    bytes << std::ifstream(path).rdbuf();
    return bytes.str();
  };
  const auto before = bytes_of_file();
  {
    const Reader reader(path);
    CHECK(reader.query(rows).rows == now);
    CHECK(reader.query("SELECT * FROM v_cell").rows.size() == 1);
    CHECK_THROWS_WITH(reader.query("SELECT one FROM v_other"),
                      ContainsSubstring("access to view \"v_other\" prohibited"));
    for (const auto* sql : {"DROP VIEW v_training", "CREATE TEMP VIEW v_mine AS SELECT 1",
                            "CREATE TEMP TABLE t (x)", "DELETE FROM run"})
      CHECK_THROWS_WITH(reader.query(sql), ContainsSubstring("queries only read"));
  }
  CHECK(bytes_of_file() == before);
  CHECK(SQLite::Database(path)
            .execAndGet("SELECT count(*) FROM sqlite_master WHERE type = 'view'")
            .getInt() == 2);
}
