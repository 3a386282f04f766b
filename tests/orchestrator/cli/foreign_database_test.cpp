// Databases of somebody else, given to the verbs: nothing outside is written, nothing goes on
// without an end, no character of theirs steers a terminal.
#include <fmt/format.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <set>

#include "core/vocabulary/text.hpp"
#include "tests/orchestrator/cli/program.hpp"

using namespace dynamiccl;
using namespace dynamiccl::testing;
using Catch::Matchers::ContainsSubstring;

namespace fs = std::filesystem;

namespace {

const std::string kEndless =
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c";

std::string in_quotes(const std::string& name, char quote = '"') {
  std::string text(1, quote);
  for (const char c : name) text += c == quote ? std::string(2, c) : std::string(1, c);
  return text + quote;
}

/// Ten changes of a schema for a name.
std::vector<std::string> changes(const std::string& name) {
  const std::string quoted = in_quotes(name);
  const auto row = [&](const std::string& kind, const std::string& sql) {
    return "PRAGMA writable_schema = ON; INSERT INTO sqlite_master VALUES (" +
           in_quotes(kind, '\'') + ", " + in_quotes(name, '\'') + ", 'run', 0, " +
           in_quotes(sql, '\'') + ")";
  };
  return {"CREATE VIEW " + quoted + " AS " + kEndless,
          "CREATE VIEW " + quoted + " AS SELECT 1; UPDATE meta SET value = '0'",
          "CREATE TRIGGER " + quoted + " AFTER UPDATE ON run BEGIN " + kEndless + "; END",
          "CREATE TRIGGER " + quoted +
              " AFTER INSERT ON meta BEGIN DELETE FROM run; END;"
              "DELETE FROM meta",
          "ALTER TABLE run ADD COLUMN " + quoted + " TEXT AS (upper(name))",
          "CREATE TABLE " + quoted + " (x TEXT)",
          "CREATE INDEX " + quoted + " ON run(upper(name))",
          "CREATE VIRTUAL TABLE " + quoted + " USING fts5(x)",
          row("view", "CREATE TRIGGER " + quoted + " AFTER UPDATE ON run BEGIN SELECT 1; END"),
          "ALTER TABLE launch RENAME TO " + quoted + "; CREATE VIEW launch AS " + kEndless};
}

/// 100 schemas: ten changes for each of ten names.
std::vector<std::string> hostile_schemas(const std::string& outside) {
  const std::string attach = "ATTACH " + in_quotes(outside, '\'') + " AS e; CREATE TABLE e.t(a);";
  const std::vector<std::string> names{"zz\"; COMMIT; " + attach + " BEGIN EXCLUSIVE; --",
                                       "zz\"; " + attach + " --",
                                       "a'; " + attach + " --",
                                       "a] ; " + attach + " --",
                                       "a\n\"; " + attach,
                                       "\x1b]0;x\x07",
                                       "v_cell2",
                                       std::string(100'000, 'n'),
                                       "\"",
                                       "$(touch " + outside + ")"};
  std::vector<std::string> schemas;
  for (const auto& name : names)
    for (const auto& sql : changes(name)) schemas.push_back(sql);
  return schemas;
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

std::string file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("100 hostile schemas: each verb refuses them or does its work, and nothing else",
          "[safety]") {
  const Folder sound;
  const auto own = database_with(sound, kSmallOsuTable);
  const auto experiment = sound.file("e.toml", kOneCell);
  const Folder folder;
  const auto outside = folder.path("outside");
  const auto db = folder.path("theirs.sqlite");
  const auto mine = folder.path("mine.sqlite");
  const std::vector<std::vector<std::string>> verbs{
      {"list", "--db", db},
      {"show", "--db", db},
      {"report", "--db", db},
      {"query", "latency", "--db", db},
      {"query", "SELECT * FROM v_run", "--db", db},
      {"import", db, "--db", mine},
      {"export", "--anonymous", folder.path("copy.sqlite"), "--db", db},
      {"clean", "--db", db},
      {"run", experiment, "--no-report", "--db", db},
      {"replay", "none", "--dry-run", "--db", db}};
  const std::set<std::string> expected{"theirs.sqlite", "theirs.sqlite-wal", "theirs.sqlite-shm",
                                       "mine.sqlite",   "copy.sqlite",       "runs",
                                       "theirs.runs"};
  std::size_t number = 0;
  for (const auto& sql : hostile_schemas(outside)) {
    for (const std::size_t step : {0, 3, 5}) {
      const auto& verb = verbs[(number + step) % verbs.size()];
      fs::copy_file(own, db, fs::copy_options::overwrite_existing);
      for (const auto* beside : {"-wal", "-shm"}) fs::remove(db + beside);
      try {
        execute(db, sql);
      } catch (const SQLite::Exception&) {
        continue;  // no such schema can be made
      }
      const auto result =
          shell("timeout -s KILL 60 " + join(
                                            [&] {
                                              std::vector<std::string> words{kProgram};
                                              for (const auto& word : verb)
                                                words.push_back(shell_quote(word));
                                              return words;
                                            }(),
                                            " "));
      INFO(verb.front() << ": " << sql.substr(0, 300) << "\n" << result.out << result.err);
      CHECK((result.exit_code == 0 || result.exit_code == 2));
      if (result.exit_code == 2) CHECK(result.err.starts_with("dynamiccl: "));
      CHECK((result.out + result.err).find_first_of("\x1b\x07") == std::string::npos);
      for (const auto& name : names_in(folder.path(""))) {
        INFO(name);
        CHECK(expected.contains(name));
      }
      fs::remove(folder.path("copy.sqlite"));
    }
    ++number;
  }
  CHECK(number == 100);
}

TEST_CASE("text of a database steers no terminal, whatever verb and format shows it", "[safety]") {
  const Folder folder;
  const auto db = database_with(folder, kSmallOsuTable);
  execute(db,
          "UPDATE run SET name = char(27) || ']0;x' || char(7) || char(155) || '31m' || "
          "char(13) || char(127) || char(8238)");
  for (const auto& command :
       std::vector<std::vector<std::string>>{{"list"},
                                             {"list", "--format", "csv"},
                                             {"list", "--format", "markdown"},
                                             {"list", "--json"},
                                             {"show"},
                                             {"show", "--json"},
                                             {"show", "--format", "csv"},
                                             {"report"},
                                             {"report", "--format", "csv"},
                                             {"report", "--format", "json"},
                                             {"report", "--html", "--out", "-"},
                                             {"query", "latency", "--format", "csv"},
                                             {"query", "latency", "--all"},
                                             {"query", "runs", "--format", "csv"},
                                             {"query", "SELECT name FROM run"},
                                             {"query", "SELECT name FROM run", "--format", "csv"},
                                             {"query", "SELECT name FROM run", "--json"}}) {
    auto words = command;
    words.insert(words.end(), {"--db", db});
    const auto result = run(words);
    INFO(join(words, " ") << result.err);
    REQUIRE(result.exit_code == 0);
    for (const char* steering : {"\x1b", "\x07", "\x7f", "\xc2\x9b", "\xe2\x80\xae", "\r\x7f"})
      CHECK(result.out.find(steering) == std::string::npos);
  }
  const auto json = run({"query", "SELECT name FROM run", "--json", "--db", db});
  CHECK_THAT(json.out, ContainsSubstring("\\u009b31m\\r\\u007f\\u202e"));
}

TEST_CASE("a cell of CSV that begins as a formula in any of its lines is text", "[safety]") {
  const Folder folder;
  const auto db = database_with(folder, kSmallOsuTable);
  const auto csv = [&](const std::string& value) {
    return run({"query", "SELECT " + value + " AS a", "--format", "csv", "--db", db}).out;
  };
  CHECK(csv("'|a'") == "a\r\n'|a\r\n");
  CHECK(csv("'x' || char(10) || '|a'") == "a\r\n\"'x\n|a\"\r\n");
  CHECK(csv("'x' || char(10) || '=1'") == "a\r\n\"'x\n=1\"\r\n");
  CHECK(csv("'x' || char(10) || 'y'") == "a\r\n\"x\ny\"\r\n");
  CHECK(csv("char(13) || '=1'") == "a\r\n\\x0d=1\r\n");
  CHECK(csv("-1.5") == "a\r\n-1.5\r\n");
}

TEST_CASE("a query ends in its time whatever a step costs", "[safety]") {
  const Folder folder;
  const auto db = database_with(folder, kSmallOsuTable);
  for (const char* sql :
       {"WITH RECURSIVE c(x) AS (SELECT zeroblob(1000000) UNION ALL SELECT x || zeroblob(100) FROM "
        "c) SELECT length(x) FROM c",
        // One step that looks for 5 MB in 20 MB, a letter at a time.
        "SELECT instr(hex(zeroblob(10000000)), hex(zeroblob(2500000)) || 1)"}) {
    const auto before = std::chrono::steady_clock::now();
    const auto result = run({"query", sql, "--within", "1", "--db", db});
    INFO(sql << result.err);
    CHECK(result.exit_code == 2);
    CHECK_THAT(result.err, ContainsSubstring("did not end in the time"));
    CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(30));
  }
}

TEST_CASE("a signal ends a run that waits for a locked database", "[safety]") {
  const Folder folder;
  const auto db = database_with(folder, kSmallOsuTable);
  SQLite::Database holder(db, SQLite::OPEN_READWRITE);
  holder.exec("BEGIN IMMEDIATE");
  for (const auto& [signal, code] : {std::pair("INT", 130), std::pair("TERM", 143)}) {
    const auto before = std::chrono::steady_clock::now();
    const auto result = shell(fmt::format("timeout --preserve-status -s {} 3 {} run {} --db {}",
                                          signal, kProgram, folder.file("e.toml", kOneCell), db));
    INFO(result.err);
    CHECK(result.exit_code == code);
    CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(20));
  }
}

TEST_CASE("files of a run are nobody else's to write, whatever the umask", "[safety]") {
  const Folder folder;
  const auto db = folder.path("x.sqlite");
  const auto measured =
      shell(fmt::format("umask 0; {} run {} --db {} --out {}", kProgram,
                        folder.file("e.toml", kOneCell), db, folder.path("kept")));
  INFO(measured.err);
  REQUIRE(measured.exit_code == 0);
  const auto report = folder.path("r.html");
  REQUIRE(
      shell(fmt::format("umask 0; {} report --db {} --out {}", kProgram, db, report)).exit_code ==
      0);
  struct stat status {};
  REQUIRE(stat(report.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path("kept"))) {
    INFO(entry.path());
    REQUIRE(stat(entry.path().c_str(), &status) == 0);
    CHECK((status.st_mode & 022) == 0);
    ++files;
  }
  CHECK(files > 2);
}

TEST_CASE("a database of an unknown file format is refused as data", "[safety]") {
  const Folder folder;
  const auto db = database_with(folder, kSmallOsuTable);
  auto bytes = file_bytes(db);
  REQUIRE(bytes.size() > 100);
  bytes[47] = 9;  // the schema's format
  std::ofstream(db, std::ios::binary) << bytes;
  for (const char* verb : {"list", "clean"}) {
    const auto result = run({verb, "--db", db});
    CHECK(result.exit_code == 2);
    CHECK_THAT(result.err, ContainsSubstring("unsupported file format"));
  }
}

TEST_CASE("a run that is refused for its folder leaves no database", "[safety]") {
  const Folder folder;
  const auto refused = run({"run", folder.file("e.toml", kOneCell), "--db", folder.path("x.sqlite"),
                            "--out", folder.file("file", "")});
  CHECK(refused.exit_code == 2);
  CHECK_FALSE(fs::exists(folder.path("x.sqlite")));
}
