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

using Words = std::vector<std::string>;

/// Somebody else's databases in a folder where nothing but the verbs' own files may come to lie.
class Theirs {
 public:
  /// @param sql what makes it of a sound one. @returns false where that cannot be made
  [[nodiscard]] bool make(const std::string& sql) const {
    fs::copy_file(own_, db_, fs::copy_options::overwrite_existing);
    for (const auto* beside : {"-wal", "-shm"}) fs::remove(db_ + beside);
    try {
      execute(db_, sql);
      return true;
    } catch (const SQLite::Exception&) {
      return false;
    }
  }

  /// A verb each that opens the database, and does little where it takes it.
  [[nodiscard]] std::vector<Words> verbs() const {
    return {{"list", "--db", db_},
            {"show", "--db", db_},
            {"report", "--db", db_},
            {"query", "latency", "--db", db_},
            {"query", "SELECT * FROM v_run", "--db", db_},
            {"import", db_, "--db", folder_.path("mine.sqlite")},
            {"export", "--anonymous", folder_.path("copy.sqlite"), "--db", db_},
            {"clean", "--db", db_},
            {"run", experiment_, "--no-report", "--db", db_},
            {"replay", "none", "--dry-run", "--db", db_}};
  }
  /// The others that open one, and other ways of the same.
  [[nodiscard]] std::vector<Words> more_verbs() const {
    return {{"compare", "last", "last", "--db", db_},
            {"export", "--measured", "last", "--format", "gloo", "--out", folder_.path("out"),
             "--db", db_},
            {"run", experiment_, "--resume", "--db", db_},
            {"replay", "last", "--db", db_},
            {"report", "--html", "--out", folder_.path("page.html"), "--db", db_},
            {"tune", experiment_, "--sweep", "--resume", "--db", db_},
            {"tune", experiment_, "--replay", "--from", "last", "--db", db_},
            {"tune", "--out", folder_.path("job"), "--db", db_, "--", "false"}};
  }

  /// No verb ends otherwise than by what it says, writes elsewhere or steers a terminal.
  [[nodiscard]] CommandResult give_to(const Words& verb) const {
    Words words{"timeout -s KILL 60 " + kProgram};
    for (const auto& word : verb) words.push_back(shell_quote(word));
    const auto result = shell(join(words, " "));
    INFO(join(words, " ") << "\n" << result.out << result.err);
    CHECK(std::set{0, 1, 2, 5}.contains(result.exit_code));
    // `tune -- COMMAND` says first what it is going to do.
    if (result.exit_code == 2)
      CHECK(("\n" + result.err).find("\ndynamiccl: ") != std::string::npos);
    CHECK((result.out + result.err).find_first_of("\x1b\x07") == std::string::npos);
    for (const auto& name : names_in(folder_.path(""))) {
      INFO(name);
      CHECK(expected_.contains(name));
    }
    for (const char* made : {"copy.sqlite", "page.html", "out", "job"})
      fs::remove_all(folder_.path(made));
    return result;
  }
  [[nodiscard]] std::string outside() const { return folder_.path("outside"); }
  [[nodiscard]] const std::string& db() const { return db_; }

 private:
  const Folder sound_;
  const std::string own_ = database_with(sound_, kSmallOsuTable);
  const std::string experiment_ = sound_.file("e.toml", kOneCell);
  const Folder folder_;
  const std::string db_ = folder_.path("theirs.sqlite");
  const std::set<std::string> expected_{
      "theirs.sqlite", "theirs.sqlite-wal", "theirs.sqlite-shm", "mine.sqlite", "copy.sqlite",
      "runs",          "theirs.runs",       "page.html",         "out",         "job"};
};

}  // namespace

TEST_CASE("100 hostile schemas: a verb refuses them or does its work, and nothing else",
          "[safety]") {
  const Theirs theirs;
  const auto verbs = theirs.verbs();
  std::size_t number = 0;
  for (const auto& sql : hostile_schemas(theirs.outside())) {
    for (const std::size_t step : {0, 3, 5})
      if (theirs.make(sql))
        CHECK(theirs.give_to(verbs[(number + step) % verbs.size()]).exit_code % 2 == 0);
    ++number;
  }
  CHECK(number == 100);
}

TEST_CASE("100 hostile schemas: what one verb refuses every verb refuses, and leaves as it is",
          "[safety][long]") {
  const Theirs theirs;
  auto verbs = theirs.verbs();
  for (const auto& verb : theirs.more_verbs()) verbs.push_back(verb);
  int refused = 0;
  for (const auto& sql : hostile_schemas(theirs.outside())) {
    bool refuses = false;
    for (const auto& verb : verbs) {
      if (!theirs.make(sql)) break;
      const auto before = file_bytes(theirs.db());
      const auto result = theirs.give_to(verb);
      INFO(join(verb, " ") << "\n" << sql.substr(0, 300) << "\n" << result.err);
      if (verb.front() == "list") refuses = result.exit_code == 2;
      if (!refuses) continue;
      CHECK(result.exit_code == 2);
      CHECK(file_bytes(theirs.db()) == before);
    }
    refused += refuses ? 1 : 0;
  }
  CHECK(refused > 50);
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

TEST_CASE("a database is imported however large its file is", "[G-01]") {
  const Folder folder;
  const auto db = database_with(folder, kSmallOsuTable);
  fs::resize_file(db, std::uintmax_t{300} << 20);  // its header counts the pages that are used
  const auto result = run({"import", db, "--db", folder.path("mine.sqlite")});
  INFO(result.err);
  CHECK(result.exit_code == 0);
}

TEST_CASE("a run that is refused for its folder leaves no database", "[safety]") {
  const Folder folder;
  const auto refused = run({"run", folder.file("e.toml", kOneCell), "--db", folder.path("x.sqlite"),
                            "--out", folder.file("file", "")});
  CHECK(refused.exit_code == 2);
  CHECK_FALSE(fs::exists(folder.path("x.sqlite")));
}
