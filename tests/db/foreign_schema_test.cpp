// A database may be somebody else's: what its schema holds is never run.
#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <thread>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/program_signals.hpp"
#include "db/anonymous.hpp"
#include "db/connection.hpp"
#include "db/own_schema.hpp"
#include "tests/db/synthetic.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

namespace fs = std::filesystem;

void make(const std::string& path) {
  Store store(path);
  const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
  store.begin_run(plan.run, plan.groups, plan.cells);
  store_launch(store, plan, plan.groups[0], 0, [](const CellInfo&, int, int) { return 5.0; });
  store.end_run("run-1", "complete");
}

void change(const std::string& path, const std::string& sql) {
  SQLite::Database db(path, SQLite::OPEN_READWRITE);
  db.exec(sql);
}

/// What every way to a database says of it; "" where it takes it.
std::vector<std::string> verdicts(const ScratchFolder& folder, const std::string& path) {
  const std::vector<std::function<void()>> ways{
      [&] { const Reader reader(path); }, [&] { const Store store(path); },
      [&] { Store(folder.file("mine.sqlite")).merge(path); },
      [&] { write_anonymous(path, folder.file("shared.sqlite"), {}); }};
  std::vector<std::string> said;
  for (const auto& way : ways) {
    try {
      way();
      said.emplace_back();
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::data);
      said.emplace_back(error.what());
    }
  }
  return said;
}

std::set<std::string> files_of(const ScratchFolder& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.file("")))
    names.insert(entry.path().filename().string());
  return names;
}

std::string file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("names are quoted whatever letters they have", "[safety]") {
  SQLite::Database db(":memory:", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  for (const std::string name :
       {"plain", "\"", "a\"; DROP TABLE kept; --", "'", "a b\n", "\x1b["}) {
    CHECK(db.execAndGet("SELECT " + quoted_text(name)).getString() == name);
    execute_one(db, "CREATE VIEW " + quoted_name(name) + " AS SELECT 1 AS one");
    CHECK(db.execAndGet("SELECT one FROM " + quoted_name(name)).getInt() == 1);
    CHECK(db.execAndGet("SELECT name FROM sqlite_master").getString() == name);
    execute_one(db, "DROP VIEW " + quoted_name(name));
  }
  execute_one(db, "CREATE TABLE first (x); CREATE TABLE second (x)");
  CHECK(db.tableExists("first"));
  CHECK_FALSE(db.tableExists("second"));
}

TEST_CASE("SQL in a view's name is not run by who drops the view", "[safety]") {
  const ScratchFolder folder;
  const auto path = folder.file("theirs.sqlite");
  make(path);
  const auto dropped = folder.file("dropped");
  for (const char* begin : {"", "BEGIN EXCLUSIVE; "}) {
    const std::string name = "zz\"; COMMIT; ATTACH '" + dropped +
                             "' AS e; CREATE TABLE e.t(a); DETACH e; " + begin + "--";
    change(path, "CREATE VIEW " + quoted_name(name) +
                     " AS SELECT 1; UPDATE meta SET value = '0' WHERE key = 'views_sha256'");
    const auto copy = folder.file("copy.sqlite");
    fs::copy_file(path, copy, fs::copy_options::overwrite_existing);
    CHECK(Store(folder.file("mine.sqlite")).merge(copy).rows >= 0);
    CHECK_NOTHROW(write_anonymous(copy, folder.file("shared.sqlite"), {}));
    fs::remove(folder.file("shared.sqlite"));
    CHECK_NOTHROW(Store(path));
    CHECK_FALSE(fs::exists(dropped));
    const auto sql = fmt::format("SELECT count(*) FROM sqlite_master WHERE name LIKE 'zz%'");
    CHECK(SQLite::Database(path).execAndGet(sql).getInt() == 0);
  }
}

TEST_CASE("what is not ours in a schema is named, and the database left as it is", "[safety]") {
  const std::string endless =
      "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c";
  const auto in_schema = [](const std::string& what) {
    return "PRAGMA writable_schema = ON; " + what + "; PRAGMA writable_schema = RESET";
  };
  const std::vector<std::pair<std::string, std::string>> changes{
      {"CREATE TRIGGER t AFTER UPDATE ON meta BEGIN " + endless + "; END",
       "the trigger \"t\" of its schema is none of DynamICCL's"},
      {"ALTER TABLE run ADD COLUMN g TEXT AS (upper(name))",
       "the table \"run\" of its schema is not as DynamICCL makes it"},
      {"ALTER TABLE run ADD COLUMN more TEXT", "the table \"run\""},
      {"ALTER TABLE run RENAME TO was; CREATE VIEW run AS " + endless,
       "is not as DynamICCL makes it"},
      {"CREATE TABLE theirs (x TEXT)", "the table \"theirs\""},
      {"CREATE INDEX i ON run(upper(name))", "the index \"i\""},
      {"DROP INDEX launch_measured_once",
       "the index \"launch_measured_once\" of its schema is "
       "missing"},
      {"CREATE VIRTUAL TABLE v USING fts5(x)", "the table \"v"},
      {"ALTER TABLE sample RENAME TO sample2", "the table \"sample"},
      {in_schema("UPDATE sqlite_master SET sql = replace(sql, 'signal INTEGER,', "
                 "'signal INTEGER, /* '' */ x TEXT AS (1), -- '' ') WHERE name = 'launch'"),
       "the table \"launch\""},
      {in_schema("INSERT INTO sqlite_master VALUES ('view', 't', 'run', 0, 'CREATE TRIGGER t AFTER "
                 "UPDATE ON run BEGIN " +
                 endless + "; END')"),
       // Where SQLite itself does not take it already.
       "schema"},
  };
  for (const auto& [sql, said] : changes) {
    INFO(sql);
    const ScratchFolder folder;
    const auto path = folder.file("theirs.sqlite");
    make(path);
    change(path, sql);
    const auto before = files_of(folder);
    const auto bytes = file_bytes(path);
    for (const auto& verdict : verdicts(folder, path)) CHECK_THAT(verdict, ContainsSubstring(said));
    auto after = files_of(folder);
    // Where a log was read by who may not write.
    for (const char* end : {"mine.sqlite", "theirs.sqlite-wal", "theirs.sqlite-shm"})
      after.erase(end);
    CHECK(after == before);
    CHECK(file_bytes(path) == bytes);
  }
}

TEST_CASE("an older database is looked through before it is brought forward", "[safety]") {
  const ScratchFolder folder;
  const auto path = folder.file("old.sqlite");
  {
    std::ifstream file(DYNAMICCL_SOURCE_DIR "/db/migrations/0001_baseline.sql");
    const std::string baseline((std::istreambuf_iterator<char>(file)), {});
    SQLite::Database old(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    old.exec(baseline +
             fmt::format("PRAGMA application_id = {}; PRAGMA user_version = 1;", kApplicationId));
    old.exec("CREATE TRIGGER t AFTER UPDATE ON meta BEGIN SELECT 1; END");
  }
  CHECK_THROWS_WITH(Store(path), ContainsSubstring("the trigger \"t\""));
  change(path, "DROP TRIGGER t");
  CHECK_NOTHROW(Store(path));
  // Tables without a version are nobody's of ours.
  change(path, "PRAGMA user_version = 0");
  CHECK_THROWS_WITH(Store(path), ContainsSubstring("is none of DynamICCL's"));
}

TEST_CASE("the views of a file are not read, whatever it says of them", "[safety]") {
  const ScratchFolder folder;
  const auto path = folder.file("theirs.sqlite");
  make(path);
  change(path,
         "DROP VIEW v_run; CREATE VIEW v_run AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT "
         "x + 1 FROM c) SELECT x AS run_id FROM c");
  const Reader reader(path);
  CHECK(reader.query("SELECT run_id FROM v_run").rows ==
        std::vector<std::vector<Value>>{{std::string("run-1")}});
}

TEST_CASE("what ANALYZE adds is taken, and left out of a copy for sharing", "[safety]") {
  const ScratchFolder folder;
  const auto path = folder.file("a.sqlite");
  make(path);
  change(path, "ANALYZE");
  for (const auto& verdict : verdicts(folder, path)) CHECK(verdict.empty());
  CHECK_FALSE(SQLite::Database(folder.file("shared.sqlite")).tableExists("sqlite_stat1"));
}

TEST_CASE("a connection attaches nothing and reads no value without an end", "[safety]") {
  const ScratchFolder folder;
  const auto path = folder.file("a.sqlite");
  make(path);
  SQLite::Database db = open_for_writing(path);
  CHECK_THROWS_WITH(db.exec("ATTACH '" + folder.file("b") + "' AS b"),
                    ContainsSubstring("too many attached databases"));
  change(path, "UPDATE run SET name = printf('%.*c', 100000000, 'x')");
  CHECK_THROWS_WITH(Reader(path).query("SELECT name FROM run"),
                    ContainsSubstring("more than 64 MiB"));
}

TEST_CASE("an import that is killed leaves nothing of the other database", "[safety]") {
  const ScratchFolder folder;
  const auto path = folder.file("theirs.sqlite");
  const auto mine = folder.file("mine.sqlite");
  make(path);
  { const Store store(mine); }
  const auto before = files_of(folder);
  const pid_t child = fork();
  if (child == 0) {
    // What is written beyond it, of the copy, is answered by a signal that ends the writer.
    const auto most = static_cast<rlim_t>(fs::file_size(path) / 2);
    const rlimit limit{most, most};
    Store store(mine);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || signal(SIGXFSZ, SIG_DFL) == SIG_ERR) _exit(3);
    store.merge(path);
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  { const Store store(mine); }
  auto after = files_of(folder);
  for (const char* end : {"theirs.sqlite-wal", "theirs.sqlite-shm"}) after.erase(end);
  CHECK(after == before);
  CHECK(Store(mine).merge(path).runs.size() == 1);
}

TEST_CASE("what imports of older programs left goes as the database is opened, not while they live",
          "[safety]") {
  const ScratchFolder folder;
  const auto mine = folder.file("mine.sqlite");
  make(mine);
  const auto left = [&] {
    auto names = files_of(folder);
    // Of a reader, who may not move a log into its database.
    for (const char* own : {"mine.sqlite-wal", "mine.sqlite-shm"}) names.erase(own);
    return names;
  };
  const std::vector<std::function<void()>> ways{[&] { const Store store(mine); },
                                                [&] { const Reader reader(mine); }};
  for (const auto& open : ways) {
    for (const char* end : {".merging", ".merging-wal", ".merging-shm"})
      std::ofstream(mine + end) << "left";
    std::ofstream(folder.file(".mine.sqlite.merging.12.dynamiccl-draft")) << "left";
    std::ofstream(folder.file("mine.sqlite.merging-notes")) << "the user's";
    open();
    CHECK(left() == std::set<std::string>{"mine.sqlite", "mine.sqlite.merging-notes"});
  }
  fs::copy_file(mine, mine + ".merging");
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t importing = fork();
  if (importing == 0) {
    SQLite::Database db(mine + ".merging", SQLite::OPEN_READWRITE);
    db.exec("BEGIN IMMEDIATE");
    [[maybe_unused]] const auto told = write(ready[1], "x", 1);
    pause();
    _exit(0);
  }
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  { const Store store(mine); }
  CHECK(fs::exists(mine + ".merging"));
  kill(importing, SIGKILL);
  REQUIRE(waitpid(importing, nullptr, 0) == importing);
  close(ready[0]);
  close(ready[1]);
  { const Store store(mine); }
  CHECK(left() == std::set<std::string>{"mine.sqlite", "mine.sqlite.merging-notes"});
}

TEST_CASE("a signal ends a statement that was there before it, and none that comes after",
          "[safety]") {
  const ScratchFolder folder;
  const auto path = folder.file("a.sqlite");
  make(path);
  const Reader reader(path);
  std::thread signal([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    noted_end_signals += 1;
  });
  CHECK_THROWS_WITH(reader.query("WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
                                 "SELECT count(*) FROM c"),
                    ContainsSubstring("a signal asked for the end"));
  signal.join();
  CHECK(reader.query("SELECT 1 FROM run").rows.size() == 1);
  noted_end_signals = 0;
}

TEST_CASE("a database in a folder that may only be read is called that", "[safety]") {
  if (geteuid() != 0) SKIP("takes root, to become another user");
  const ScratchFolder folder;
  const auto path = folder.file("a.sqlite");
  make(path);
  constexpr uid_t kNobody = 65534;
  REQUIRE(chown(path.c_str(), kNobody, kNobody) == 0);
  REQUIRE(chown(folder.file("").c_str(), kNobody, kNobody) == 0);
  REQUIRE(chmod(folder.file("").c_str(), 0500) == 0);
  const pid_t child = fork();
  if (child == 0) {
    if (setresuid(kNobody, kNobody, kNobody) != 0) _exit(3);
    try {
      const Store store(path);
      _exit(0);
    } catch (const Error& error) {
      _exit(std::string(error.what()).find("may not be written") == std::string::npos ? 2 : 1);
    }
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 1);
}
