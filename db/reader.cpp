#include "db/reader.hpp"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/error.hpp"
#include "core/vocabulary/text.hpp"
#include "db/connection.hpp"
#include "db/draft_database.hpp"
#include "db/migrations.hpp"
#include "db/own_schema.hpp"
#include "db/usual_db.hpp"

namespace dynamiccl {
namespace {

Value value_of(const SQLite::Column& column) {
  switch (column.getType()) {
    case SQLITE_NULL:
      return std::monostate{};
    case SQLITE_INTEGER:
      return static_cast<std::int64_t>(column.getInt64());
    case SQLITE_FLOAT:
      return column.getDouble();
    default:
      return column.getString();
  }
}

void bind(SQLite::Statement& statement, int index, const Value& value) {
  std::visit(
      [&](const auto& v) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(v)>, std::monostate>) {
          statement.bind(index, v);
        } else {
          statement.bind(index);
        }
      },
      value);
}

/// `sql` without the blanks, comments and empty statements at its beginning.
std::string_view without_empty_start(std::string_view sql) {
  constexpr std::string_view kEmpty = " \t\n\f\r;";
  while (!sql.empty()) {
    std::size_t end = sql.find_first_not_of(kEmpty);
    if (sql.starts_with("--")) {
      end = sql.find('\n');
    } else if (sql.starts_with("/*")) {
      end = sql.find("*/", 2);
      if (end != std::string_view::npos) end += 2;
    }
    if (end == 0) break;
    sql.remove_prefix(std::min(end, sql.size()));
  }
  return sql;
}

/// The statement that `sql` consists of, without what is empty around it.
/// @throws Error(input) when there is none or another one follows
std::string only_statement(const std::string& sql) {
  const std::string_view text = without_empty_start(sql);
  if (text.empty())
    throw Error(ErrorKind::input,
                "query: there is no statement, only blanks or comments; write a SELECT, or a name "
                "that `dynamiccl query` lists");
  for (std::size_t i = text.find(';'); i != std::string_view::npos; i = text.find(';', i + 1)) {
    std::string statement(text.substr(0, i + 1));
    // sqlite3_complete knows strings, comments and triggers, so that we need not.
    if (sqlite3_complete(statement.c_str()) == 0) continue;
    if (without_empty_start(text.substr(i + 1)).empty()) return statement;
    throw Error(ErrorKind::input, "query: one statement at a time; leave out what follows the ';'");
  }
  return std::string(text);
}

/// Allows what only reads. A read-only connection alone would still let VACUUM INTO write a file.
int allow_reading(void*, int action, const char* name, const char*, const char*, const char*) {
  constexpr std::array<std::string_view, 9> kPragmas{
      "table_info",       "table_xinfo",  "table_list",    "index_list",   "index_info",
      "foreign_key_list", "user_version", "database_list", "function_list"};
  switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_FUNCTION:
    case SQLITE_RECURSIVE:
      return SQLITE_OK;
    case SQLITE_PRAGMA:
      return std::find(kPragmas.begin(), kPragmas.end(), name) != kPragmas.end() ? SQLITE_OK
                                                                                 : SQLITE_DENY;
    case SQLITE_UPDATE:
      // What SQLite itself asks when json_each and its kin are first used; the real thing fails on
      // a connection that is read-only.
      return std::string_view(name) == "sqlite_master" ? SQLITE_OK : SQLITE_DENY;
    default:
      return SQLITE_DENY;
  }
}

/// "last~1" of runs of one kind.
struct RunsBack {
  std::string_view kind;  ///< "run", "tune" or "import"
  std::size_t back = 0;
};

/// @returns nullopt for what begins with none of the words
std::optional<RunsBack> runs_back(const std::string& name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kWords{
      {{"last", "run"}, {"last-tune", "tune"}, {"last-import", "import"}}};
  const auto tilde = std::min(name.find('~'), name.size());
  const auto* word = std::find_if(kWords.begin(), kWords.end(), [&](const auto& known) {
    return known.first == std::string_view(name).substr(0, tilde);
  });
  if (word == kWords.end()) return std::nullopt;
  RunsBack found{word->second};
  if (tilde == name.size()) return found;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + tilde + 1, end, found.back);
  if (parsed.ec != std::errc() || parsed.ptr != end)
    throw Error(ErrorKind::input, fmt::format("run \"{}\": after {}~ comes a number, as in {}~1",
                                              name, word->first, word->first));
  return found;
}

/// Ids, newest first. A try that failed before anything was measured is left out while there are
/// others; where none of the kind is left, the runs of all kinds are taken.
std::vector<std::string> runs_of_kind(const Reader& reader, std::string_view kind) {
  const Table table = reader.query(
      "SELECT r.uuid, CASE WHEN EXISTS (SELECT 1 FROM imported_run i WHERE i.run_id = r.id) THEN "
      "'import' WHEN r.replay_of IS NOT NULL OR x.overrides_json LIKE '%\"gate=again\"%' OR "
      "r.spec_path LIKE 'doctor --prove %' THEN 'repeat' "
      "WHEN x.overrides_json LIKE '%\"tune=%' THEN 'tune' ELSE 'run' END AS kind, "
      "r.status = 'failed' AND NOT EXISTS (SELECT 1 FROM plan_group g JOIN launch l ON l.group_id "
      "= g.id WHERE g.run_id = r.id) AS tried FROM run r LEFT JOIN experiment x ON x.id = "
      "r.experiment_id ORDER BY r.id DESC");
  const auto chosen = [&](bool tries, bool of_kind) {
    std::vector<std::string> ids;
    for (const auto& row : table.rows)
      if ((tries || std::get<std::int64_t>(row[2]) == 0) &&
          (!of_kind || std::get<std::string>(row[1]) == kind))
        ids.push_back(std::get<std::string>(row[0]));
    return ids;
  };
  auto ids = chosen(false, !kind.empty());
  if (ids.empty() && kind != "tune" && kind != "import") ids = chosen(false, false);
  return ids.empty() && kind.empty() ? chosen(true, false) : ids;
}

}  // namespace

/// Bytes that one answer may take, in SQLite and here: more is a statement without an end.
constexpr std::size_t kMostAnswerBytes = std::size_t{1} << 30;

std::size_t bytes_of(const Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  return sizeof(Value) + (text == nullptr ? 0 : text->size());
}

[[noreturn]] void refuse_too_large() {
  throw Error(ErrorKind::input,
              fmt::format("query: the answer needs more than {} MiB of memory; add LIMIT or a "
                          "WHERE, and give every recursive SELECT an end",
                          kMostAnswerBytes >> 20));
}

/// Ends what a connection runs past a moment. SQLite looks at the clock by itself only between
/// steps, and a step may be as long as its values are large.
class Deadline {
 public:
  Deadline(sqlite3* handle, std::chrono::seconds time, std::function<void()> hung)
      : handle_(handle),
        until_(std::chrono::steady_clock::now() + time),
        hung_(std::move(hung)),
        watching_([this] { watch(); }) {}
  ~Deadline() {
    set(done_, true);
    watching_.join();
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;
  void in_statement(bool running) { set(running_, running); }

 private:
  void set(bool& what, bool value) {
    const std::lock_guard lock(mutex_);
    what = value;
    changed_.notify_all();
  }
  void watch() {
    constexpr std::chrono::milliseconds kAgain{50};
    constexpr std::chrono::seconds kOneStep{1};
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, until_, [this] { return done_; });
    for (; !done_; changed_.wait_for(lock, kAgain)) {
      // Again and again: another statement may begin.
      sqlite3_interrupt(handle_);
      if (running_ && std::chrono::steady_clock::now() > until_ + kOneStep) hung_();
    }
  }

  sqlite3* handle_;
  std::chrono::steady_clock::time_point until_;
  std::function<void()> hung_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool running_ = false;
  bool done_ = false;
  std::thread watching_;
};

class Reader::Impl {
 public:
  explicit Impl(const std::string& path)
      : path_(path), db_(opened(path, [&] {
          return as_current(open_for_reading(path), path, current_schema());
        })) {
    const EndedBySignals opening(db_);
    remove_left_merging(path);
    opened(path_, [&] { require_own_schema(db_, path_, current_schema()); });
    // What does not fit into memory would go on into temporary files until a disk is full.
    sqlite3_hard_heap_limit64(static_cast<sqlite3_int64>(kMostAnswerBytes));
    db_.exec("PRAGMA temp_store=MEMORY");
    opened(path_, [&] { read_through_views_of(db_, current_schema()); });
    sqlite3_set_authorizer(db_.getHandle(), allow_reading, nullptr);
  }

  std::string path_;
  mutable SQLite::Database db_;
  std::unique_ptr<Deadline> deadline_;  ///< ends before the connection does
};

/// Says of its connection that a statement runs.
class Running {
 public:
  explicit Running(Deadline* deadline) : deadline_(deadline) {
    if (deadline_ != nullptr) deadline_->in_statement(true);
  }
  ~Running() {
    if (deadline_ != nullptr) deadline_->in_statement(false);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  Deadline* deadline_;
};

Reader::Reader(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
Reader::~Reader() = default;
Reader::Reader(Reader&&) noexcept = default;
Reader& Reader::operator=(Reader&&) noexcept = default;

void Reader::end_after(std::chrono::seconds time, std::function<void()> hung) {
  impl_->deadline_ = std::make_unique<Deadline>(impl_->db_.getHandle(), time, std::move(hung));
}

const char* Reader::late_query() {
  return "query: the statement did not end in the time that a query may take (--within SECONDS); "
         "add LIMIT or a WHERE, and give every recursive SELECT an end";
}

const std::string& Reader::path() const { return impl_->path_; }

Table Reader::query(const std::string& sql, const std::vector<Value>& params) const {
  const std::string only = only_statement(sql);
  const EndedBySignals ended(impl_->db_);
  const Running running(impl_->deadline_.get());
  try {
    SQLite::Statement statement(impl_->db_, only);
    for (std::size_t i = 0; i < params.size(); ++i) {
      bind(statement, static_cast<int>(i + 1), params[i]);
    }
    Table table;
    for (int i = 0; i < statement.getColumnCount(); ++i) {
      table.columns.emplace_back(statement.getColumnName(i));
    }
    std::size_t bytes = 0;
    while (statement.executeStep()) {
      auto& row = table.rows.emplace_back();
      row.reserve(table.columns.size());
      for (int i = 0; i < statement.getColumnCount(); ++i) {
        row.push_back(value_of(statement.getColumn(i)));
        bytes += bytes_of(row.back());
      }
      if (bytes > kMostAnswerBytes) refuse_too_large();
    }
    return table;
  } catch (const SQLite::Exception& error) {
    const int code = error.getErrorCode() & 0xff;
    if (code == SQLITE_AUTH || code == SQLITE_READONLY) {
      throw Error(ErrorKind::input,
                  "query: this statement would write or change settings, and queries only read; "
                  "use SELECT");
    }
    if (code == SQLITE_NOMEM) refuse_too_large();
    if (code == SQLITE_INTERRUPT && impl_->deadline_ != nullptr)
      throw Error(ErrorKind::input, late_query());
    if (code == SQLITE_ERROR || code == SQLITE_RANGE) {
      throw Error(ErrorKind::input,
                  fmt::format("query: {}; `dynamiccl query schema` lists tables and columns",
                              error.what()));
    }
    throw_explained(error, impl_->path_, "reading");
  }
}

std::string Reader::newest_run() const {
  const auto ids = runs_of_kind(*this, "");
  return ids.empty() ? "" : ids.front();
}

std::string Reader::resolve_run(const std::string& name) const {
  const auto text = [](const Value& value) { return std::get<std::string>(value); };
  const Table runs = query("SELECT uuid FROM run ORDER BY id DESC");
  if (runs.rows.empty()) {
    throw Error(
        ErrorKind::input,
        fmt::format("database {}: holds no run yet; `dynamiccl run FILE` makes one", path()));
  }
  if (const auto wanted = runs_back(name)) {
    const auto ids = runs_of_kind(*this, wanted->kind);
    if (wanted->back < ids.size()) return ids[wanted->back];
    const std::string which =
        wanted->kind == "run" ? " that `run` measured" : fmt::format(" of {}", wanted->kind);
    const auto all = ids.size() == runs.rows.size()
                         ? ""
                         : fmt::format(", of {} in all; `dynamiccl list{}` shows them",
                                       runs.rows.size(), db_words(path()));
    throw Error(ErrorKind::input, fmt::format("run \"{}\": the database holds only {}{}{}", name,
                                              counted(ids.size(), "run"), which, all));
  }
  std::vector<std::string> fitting;
  for (const auto& row : runs.rows) {
    if (!name.empty() && text(row[0]).rfind(name, 0) == 0) fitting.push_back(text(row[0]));
  }
  if (fitting.size() == 1) return fitting.front();
  if (fitting.empty()) {
    throw Error(ErrorKind::input,
                fmt::format("no run \"{}\" in {}; `dynamiccl list{}` shows the runs", name, path(),
                            db_words(path())));
  }
  throw Error(ErrorKind::input, fmt::format("run \"{}\" fits {} runs: {}; give more letters", name,
                                            fitting.size(), join(fitting, ", ")));
}

}  // namespace dynamiccl
