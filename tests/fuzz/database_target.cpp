#include "tests/fuzz/database_target.hpp"

#include <SQLiteCpp/SQLiteCpp.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "db/anonymous.hpp"
#include "db/connection.hpp"
#include "db/migrations.hpp"
#include "db/own_schema.hpp"
#include "tests/db/synthetic.hpp"

namespace dynamiccl::fuzz {
namespace {

namespace fs = std::filesystem;

/// In memory where there is such a place: a database of its own is written for each input.
const std::string& scratch() {
  static const std::string folder = [] {
    std::string name = fs::is_directory("/dev/shm") ? "/dev/shm/dynamiccl-fuzz-XXXXXX"
                                                    : "/tmp/dynamiccl-fuzz-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no scratch folder");
    static const std::string made = name;
    std::atexit([] { fs::remove_all(made); });
    return name;
  }();
  return folder;
}

std::string in_scratch(const std::string& name) { return scratch() + "/" + name; }

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A database with a run, as this build makes it.
const std::string& sound_database() {
  static const std::string bytes = [] {
    using namespace testing;
    const auto path = in_scratch("sound.sqlite");
    {
      Store store(path);
      const auto plan = make_plan("run-1", {"bare-metal"}, {"allreduce"}, {1024});
      store.begin_run(plan.run, plan.groups, plan.cells);
      store_launch(store, plan, plan.groups[0], 0, [](const CellInfo&, int, int) { return 5.0; });
      store.end_run("run-1", "complete");
    }
    auto text = file_text(path);
    fs::remove(path);
    return text;
  }();
  return bytes;
}

int few_steps(void* steps) { return ++*static_cast<int*>(steps) > 200 ? 1 : 0; }

/// Not by the functions of the database layer, which are among what is tried.
std::string in_quotes(const std::string& text, char quote) {
  std::string result(1, quote);
  for (const char c : text) result += c == quote ? std::string(2, c) : std::string(1, c);
  return result + quote;
}
std::string as_name(const std::string& name) { return in_quotes(name, '"'); }
std::string as_text(const std::string& text) { return in_quotes(text, '\''); }

/// The SQL of one line; what does not parse changes nothing.
std::string sql_of(const std::string& line) {
  const auto tab = std::min(line.find('\t'), line.size());
  const std::string name = line.substr(1, tab - 1);
  const std::string body = tab < line.size() ? line.substr(tab + 1) : "";
  switch (line.front()) {
    case 'v':
      return "CREATE VIEW " + as_name(name) + " AS " + body;
    case 't':
      return "CREATE TRIGGER " + as_name(name) + " AFTER UPDATE ON meta BEGIN " + body + "; END";
    case 'g':
      return "ALTER TABLE run ADD COLUMN " + as_name(name) + " TEXT AS (" + body + ")";
    case 'x':
      return "CREATE INDEX " + as_name(name) + " ON run(" + body + ")";
    case 'a':
      return "CREATE TABLE " + as_name(name) + " (" + body + ")";
    case 'o':
      return "INSERT INTO sqlite_master VALUES ('view', " + as_text(name) + ", 'run', 0, " +
             as_text(body) + ")";
    case 'm':
      return "INSERT OR REPLACE INTO meta VALUES (" + as_text(name) + ", " + as_text(body) + ")";
    case 'n':
      return "UPDATE run SET name = " + as_text(name);
    case 'u':
      return "PRAGMA user_version = " + name;
    default:
      return body;
  }
}

constexpr std::size_t kVersions = 18;  ///< of a file's format, for writing and reading: 2 has a log

/// A connection to a database in memory.
SQLite::Database in_memory(std::string bytes) {
  SQLite::Database db(":memory:", SQLite::OPEN_READWRITE);
  // In memory there is no log.
  bytes.at(kVersions) = bytes.at(kVersions + 1) = 1;
  const auto size = static_cast<sqlite3_int64>(bytes.size());
  auto* copy = static_cast<unsigned char*>(sqlite3_malloc64(bytes.size()));
  std::copy(bytes.begin(), bytes.end(), copy);
  if (sqlite3_deserialize(db.getHandle(), "main", copy, size, size,
                          SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE) !=
      SQLITE_OK)
    throw std::runtime_error("no database in memory");
  return db;
}

std::string bytes_of(SQLite::Database& db) {
  sqlite3_int64 size = 0;
  unsigned char* copy = sqlite3_serialize(db.getHandle(), "main", &size, 0);
  std::string bytes(reinterpret_cast<const char*>(copy), static_cast<std::size_t>(size));
  sqlite3_free(copy);
  return bytes;
}

/// Three tables, so that an input costs a tenth of a millisecond: what is ours, what is brought
/// forward and what is refused is decided by the same functions for them.
const SchemaSet& small_schema() {
  static const SchemaSet set{
      "CREATE TABLE meta (key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT "
      "ROWID;CREATE TABLE run (id INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT;",
      "CREATE TABLE meta (key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT "
      "ROWID;CREATE TABLE run (id INTEGER PRIMARY KEY, name TEXT NOT NULL, status TEXT) STRICT;"
      "CREATE TABLE launch (run_id INTEGER NOT NULL REFERENCES run(id), signal INTEGER, uuid TEXT "
      "UNIQUE) STRICT;CREATE INDEX launch_run ON launch(run_id);",
      "CREATE VIEW v_run AS SELECT id AS run_id, name FROM run;\n"
      "CREATE VIEW v_cell AS SELECT r.run_id, r.name, l.signal FROM v_run r JOIN launch l ON "
      "l.run_id = r.run_id;\n",
      {{2,
        "ALTER TABLE run ADD COLUMN status TEXT;"
        "CREATE TABLE launch (run_id INTEGER NOT NULL REFERENCES run(id), signal INTEGER, uuid "
        "TEXT UNIQUE) STRICT;CREATE INDEX launch_run ON launch(run_id);"}}};
  return set;
}

const std::string& small_database() {
  static const std::string bytes = [] {
    SQLite::Database db(":memory:", SQLite::OPEN_READWRITE);
    migrate(db, "small", small_schema());
    db.exec("INSERT INTO run VALUES (1, 'a', 'complete'); INSERT INTO launch VALUES (1, 0, 'u')");
    return bytes_of(db);
  }();
  return bytes;
}

/// What the input itself may do: write nowhere else, nor without an end.
void limit(SQLite::Database& db, int& steps) {
  sqlite3_limit(db.getHandle(), SQLITE_LIMIT_ATTACHED, 0);
  sqlite3_limit(db.getHandle(), SQLITE_LIMIT_LENGTH, 1'000'000);
  sqlite3_progress_handler(db.getHandle(), 1000, few_steps, &steps);
  db.tryExec("PRAGMA writable_schema = ON");
}

/// Stores what CREATE says where that is right, without this connection's reading it: so its
/// schema need not be read anew for the next input.
void store_definition(SQLite::Database& db, const std::string& kind, const std::string& name,
                      const std::string& sql) {
  sqlite3_stmt* statement = nullptr;
  const char* end = nullptr;
  sqlite3_prepare_v2(db.getHandle(), sql.c_str(), -1, &statement, &end);
  if (statement == nullptr) return;
  sqlite3_finalize(statement);
  std::string text(sql.c_str(), end);
  text.erase(text.find_last_not_of("; \t\n\f\r") + 1);
  db.tryExec("INSERT INTO sqlite_master SELECT " + as_text(kind) + ", " + as_text(name) + ", " +
             (kind == "view" ? as_text(name) : "'meta'") + ", 0, " + as_text(text) +
             " WHERE NOT EXISTS (SELECT 1 FROM sqlite_master WHERE name = " + as_text(name) + ")");
}

std::vector<std::string> lines_of(const std::string& input) {
  std::vector<std::string> lines;
  for (auto line : split(input, '\n')) {
    // What an input can try to write into, wherever it lies.
    constexpr std::string_view kOther = "other.sqlite";
    if (const auto at = line.find(kOther); at != std::string::npos)
      line.replace(at, kOther.size(), in_scratch(std::string(kOther)));
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

/// What an input makes of a sound database.
std::string make_foreign(const std::string& sound, const std::vector<std::string>& lines) {
  int steps = 0;
  SQLite::Database db = in_memory(sound);
  limit(db, steps);
  for (const auto& line : lines) db.tryExec(sql_of(line));
  return bytes_of(db);
}

/// The same of the small one, with one connection for all inputs that allow it.
std::string make_small(const std::vector<std::string>& lines) {
  const bool plain = std::all_of(lines.begin(), lines.end(), [](const std::string& line) {
    return std::string_view("vtomn").find(line.front()) != std::string_view::npos;
  });
  if (!plain) return make_foreign(small_database(), lines);
  static int steps = 0;
  static SQLite::Database db = [] {
    auto kept = in_memory(small_database());
    limit(kept, steps);
    return kept;
  }();
  steps = 0;
  db.exec("BEGIN");
  for (const auto& line : lines) {
    const auto name = line.substr(1, std::min(line.find('\t'), line.size()) - 1);
    if (line.front() == 'v' || line.front() == 't')
      store_definition(db, line.front() == 'v' ? "view" : "trigger", name, sql_of(line));
    else
      db.tryExec(sql_of(line));
  }
  auto bytes = bytes_of(db);
  db.exec("ROLLBACK");
  return bytes;
}

/// Of statements that were made here; the input's own were run by another connection.
bool blames_our_sql(const std::string& what) {
  constexpr std::array<std::string_view, 3> kOfParsing{"syntax error", "unrecognized token",
                                                       "incomplete input"};
  // SQLite says the one of a schema's text, we the other with its names.
  for (const char* of_theirs : {"malformed database schema", "of its schema"})
    if (what.find(of_theirs) != std::string::npos) return false;
  return std::any_of(kOfParsing.begin(), kOfParsing.end(),
                     [&](std::string_view part) { return what.find(part) != std::string::npos; });
}

void attempt(const std::function<void()>& open) {
  try {
    open();
  } catch (const Error& error) {
    const std::string what = error.what();
    if (error.kind() == ErrorKind::bug || blames_our_sql(what)) throw std::logic_error(what);
  }
}

/// As Reader and Store open a file. A database of another version is brought forward.
void open_small(const std::string& bytes) {
  attempt([&] {
    explained("small", "opening", [&] {
      SQLite::Database given = in_memory(bytes);
      distrust(given);
      SQLite::Database db = as_current(std::move(given), "small", small_schema());
      require_own_schema(db, "small", small_schema());
      read_through_views_of(db, small_schema());
      SQLite::Statement rows(db, "SELECT * FROM v_cell");
      while (rows.executeStep()) {
      }
    });
  });
}

void open_file(std::size_t way, const std::string& path) {
  const auto mine = in_scratch("mine.sqlite");
  attempt([&] {
    if (way == 1) {
      const Reader reader(path);
      static_cast<void>(reader.query("SELECT * FROM v_run"));
      static_cast<void>(reader.query("SELECT * FROM v_cell"));
    } else if (way == 2) {
      const Store store(path);
    } else if (way == 3) {
      write_file(mine, sound_database());
      Store(mine).merge(path);
    } else {
      write_anonymous(path, in_scratch("shared.sqlite"), {});
    }
  });
}

/// When the file was written last, and what it is.
std::tuple<ino_t, off_t, time_t, long> state_of(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return {};
  return {status.st_ino, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

}  // namespace

void read_database(const std::string& input, std::size_t way) {
  const auto lines = lines_of(input);
  if (way == 0) return open_small(make_small(lines));
  constexpr unsigned kLongestS = 60;
  alarm(kLongestS);
  const auto path = in_scratch("theirs.sqlite");
  const auto other = in_scratch("other.sqlite");
  write_file(other, sound_database());
  const auto untouched = state_of(other);
  auto bytes = make_foreign(sound_database(), lines);
  bytes.at(kVersions) = bytes.at(kVersions + 1) = 2;
  write_file(path, bytes);
  open_file(way, path);
  std::string wrote = state_of(other) == untouched ? "" : other;
  for (const auto& entry : fs::directory_iterator(scratch())) {
    const auto name = entry.path().filename().string();
    const bool ours = name.starts_with("theirs.sqlite") || name.starts_with("mine.sqlite") ||
                      name == "shared.sqlite" || name == "other.sqlite";
    if (!ours) wrote = name;
    fs::remove(entry.path());
  }
  alarm(0);
  if (!wrote.empty()) throw std::logic_error("a foreign database wrote into " + wrote);
}

void read_database(const std::string& input) {
  constexpr std::size_t kSmallOnes = 128;
  const auto ways = input.size() / kSmallOnes;
  read_database(input, input.size() % kSmallOnes == 0 ? 1 + ways % (kDatabaseWays - 1) : 0);
}

}  // namespace dynamiccl::fuzz
