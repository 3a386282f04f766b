#include "tests/fuzz/database_target.hpp"

#include <SQLiteCpp/SQLiteCpp.h>
#include <sqlite3.h>
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

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "db/anonymous.hpp"
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

void make_foreign(const std::string& path, const std::string& input) {
  std::ofstream(path, std::ios::binary) << sound_database();
  SQLite::Database db(path, SQLite::OPEN_READWRITE);
  // The input itself may write nowhere else, nor without an end.
  int steps = 0;
  sqlite3_limit(db.getHandle(), SQLITE_LIMIT_ATTACHED, 0);
  sqlite3_limit(db.getHandle(), SQLITE_LIMIT_LENGTH, 1'000'000);
  sqlite3_progress_handler(db.getHandle(), 1000, few_steps, &steps);
  db.tryExec("PRAGMA writable_schema = ON");
  for (auto line : split(input, '\n')) {
    // What an input can try to write into, wherever it lies.
    constexpr std::string_view kOther = "other.sqlite";
    if (const auto at = line.find(kOther); at != std::string::npos)
      line.replace(at, kOther.size(), in_scratch(std::string(kOther)));
    if (!line.empty()) db.tryExec(sql_of(line));
  }
}

/// Of statements that were made here; the input's own were run by another connection.
bool blames_our_sql(const std::string& what) {
  constexpr std::array<std::string_view, 3> kOfParsing{"syntax error", "unrecognized token",
                                                       "incomplete input"};
  // SQLite says this of the text of a schema.
  if (what.find("malformed database schema") != std::string::npos) return false;
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

}  // namespace

void read_database(const std::string& input) {
  constexpr unsigned kLongestS = 60;
  alarm(kLongestS);
  const auto path = in_scratch("theirs.sqlite");
  const auto mine = in_scratch("mine.sqlite");
  const auto shared = in_scratch("shared.sqlite");
  const auto other = in_scratch("other.sqlite");
  std::ofstream(mine, std::ios::binary) << sound_database();
  std::ofstream(other, std::ios::binary) << sound_database();
  make_foreign(path, input);
  attempt([&] {
    const Reader reader(path);
    static_cast<void>(reader.query("SELECT * FROM v_run"));
    static_cast<void>(reader.query("SELECT * FROM v_cell"));
  });
  attempt([&] { write_anonymous(path, shared, {}); });
  attempt([&] { Store(mine).merge(path); });
  attempt([&] { const Store store(path); });
  const bool untouched = file_text(other) == sound_database();
  std::set<std::string> unexpected;
  for (const auto& entry : fs::directory_iterator(scratch())) {
    const auto name = entry.path().filename().string();
    const bool ours = name.starts_with("theirs.sqlite") || name.starts_with("mine.sqlite") ||
                      name == "shared.sqlite" || name == "other.sqlite";
    if (!ours) unexpected.insert(name);
    fs::remove(entry.path());
  }
  alarm(0);
  if (!untouched || !unexpected.empty())
    throw std::logic_error("a foreign database wrote into " +
                           (untouched ? *unexpected.begin() : other));
}

}  // namespace dynamiccl::fuzz
