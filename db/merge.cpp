#include "db/merge.hpp"

#include <SQLiteCpp/Backup.h>
#include <fmt/format.h>

#include <filesystem>

#include "core/vocabulary/text.hpp"
#include "db/merge_plan.hpp"
#include "db/migrations.hpp"
#include "db/statements.hpp"

namespace dynamiccl {
namespace {

/// A copy of the other database that may be brought forward to this program's schema. Made with
/// SQLite's own backup, so that what still lies in its WAL comes along.
class Snapshot {
 public:
  Snapshot(const std::string& other, const std::string& beside) : path_(beside + ".merging") {
    remove();
    explained(other, "copying", [&] {
      SQLite::Database from = open_for_reading(other);
      SQLite::Database to(file_name_of(path_), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
      SQLite::Backup backup(to, from);
      backup.executeStep();
    });
    SQLite::Database copy = open_for_writing(path_);
    migrate(copy, other, current_schema());
  }
  ~Snapshot() { remove(); }
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  void remove() const {
    std::error_code ignored;
    for (const char* suffix : {"", "-wal", "-shm", "-journal"})
      std::filesystem::remove(path_ + suffix, ignored);
  }

  std::string path_;
};

/// Attached as "other" while it lives.
class Attached {
 public:
  Attached(SQLite::Database& db, const std::string& path) : db_(db) {
    SQLite::Statement attach(db_, "ATTACH ? AS other");
    attach.bind(1, path);
    attach.exec();
  }
  ~Attached() {
    db_.tryExec("DROP TABLE IF EXISTS temp.merge_runs; DROP TABLE IF EXISTS temp.merge_numbers");
    db_.tryExec("DETACH other");
  }
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;

 private:
  SQLite::Database& db_;
};

std::string number_of(const std::string& table, const std::string& value) {
  return fmt::format("(SELECT n.new FROM temp.merge_numbers n WHERE n.of = '{}' AND n.old = {})",
                     table, value);
}

/// Rows of an owned table that belong to a run that comes: all that they cannot be without is
/// there.
std::string comes(const MergeTable& table) {
  if (table.name == "run") return "r.uuid IN (SELECT uuid FROM temp.merge_runs)";
  std::vector<std::string> conditions;
  for (const auto& column : table.columns) {
    if (column.numbers.empty() || column.numbers == table.name) continue;
    const bool key = column.required || (table.columns.front().name == column.name);
    if (key)
      conditions.push_back(
          fmt::format("{} IS NOT NULL", number_of(column.numbers, "r.\"" + column.name + "\"")));
  }
  if (conditions.empty()) {
    throw Error(ErrorKind::bug,
                fmt::format("table {} has no reference that it cannot be without", table.name));
  }
  return join(conditions, " AND ");
}

/// Remembers which number each row that comes gets here.
void number_rows(SQLite::Database& db, const MergeTable& table) {
  if (!table.numbered) return;
  const auto& key = table.columns.front().name;
  if (table.owned) {
    db.exec(
        fmt::format("INSERT INTO temp.merge_numbers SELECT '{0}', r.\"{1}\", r.\"{1}\" + (SELECT "
                    "coalesce(max(\"{1}\"), 0) FROM main.\"{0}\") FROM other.\"{0}\" r WHERE {2}",
                    table.name, key, comes(table)));
    return;
  }
  db.exec(fmt::format(
      "INSERT INTO temp.merge_numbers SELECT '{0}', r.\"{1}\", m.\"{1}\" FROM other.\"{0}\" r "
      "JOIN main.\"{0}\" m ON m.\"{2}\" = r.\"{2}\"",
      table.name, key, table.known_by));
}

std::int64_t copy_rows(SQLite::Database& db, const MergeTable& table) {
  std::vector<std::string> names;
  std::vector<std::string> values;
  for (const auto& column : table.columns) {
    const std::string quoted = "\"" + column.name + "\"";
    // A shared row gets the next free number.
    if (!table.owned && column.numbers == table.name) continue;
    names.push_back(quoted);
    values.push_back(column.numbers.empty() ? "r." + quoted
                                            : number_of(column.numbers, "r." + quoted));
  }
  const std::string known = table.owned
                                ? comes(table)
                                : fmt::format("r.\"{0}\" NOT IN (SELECT \"{0}\" FROM main.\"{1}\")",
                                              table.known_by, table.name);
  return db.exec(
      fmt::format("INSERT INTO main.\"{0}\"({1}) SELECT {2} FROM other.\"{0}\" r "
                  "WHERE {3}",
                  table.name, join(names, ", "), join(values, ", "), known));
}

std::vector<std::string> texts(SQLite::Database& db, const std::string& sql) {
  std::vector<std::string> list;
  SQLite::Statement rows(db, sql);
  while (rows.executeStep()) list.push_back(rows.getColumn(0).getString());
  return list;
}

int number(SQLite::Database& db, const std::string& sql) { return db.execAndGet(sql).getInt(); }

/// The other database is attached as "other".
MergeSummary merge_attached(const Statements& statements, const std::string& other_path) {
  SQLite::Database& db = statements.db();
  MergeSummary summary;
  db.exec(
      "INSERT INTO temp.merge_runs SELECT uuid FROM other.run WHERE status <> 'running' AND uuid "
      "NOT IN (SELECT uuid FROM main.run)");
  summary.already_there =
      number(db, "SELECT count(*) FROM other.run WHERE uuid IN (SELECT uuid FROM main.run)");
  summary.running = number(db,
                           "SELECT count(*) FROM other.run WHERE status = 'running' AND uuid NOT "
                           "IN (SELECT uuid FROM main.run)");
  if (number(db, "SELECT count(*) FROM temp.merge_runs") == 0) return summary;
  for (const auto& table : merge_plan(db)) {
    // Numbers of an owned table are given before its rows come, those of a shared one after.
    if (table.owned) number_rows(db, table);
    summary.rows += copy_rows(db, table);
    if (!table.owned) number_rows(db, table);
  }
  summary.runs = texts(db,
                       "SELECT r.uuid FROM main.run r JOIN temp.merge_runs m ON m.uuid = r.uuid "
                       "ORDER BY r.id");
  for (const auto& uuid : summary.runs) {
    statements.execute(
        "INSERT INTO imported_run(run_id, format, source, imported_utc, source_json) "
        "SELECT id, 'dynamiccl', ?, ?, '{}' FROM run WHERE uuid = ? "
        "AND id NOT IN (SELECT run_id FROM imported_run)",
        other_path, now_utc(), uuid);
  }
  return summary;
}

}  // namespace

MergeSummary merge_database(Statements& db, const std::string& other_path) {
  std::error_code ignored;
  if (std::filesystem::equivalent(other_path, db.path(), ignored)) {
    throw Error(ErrorKind::input,
                fmt::format("import: {} is the database that it would be merged into; name another "
                            "one with --db",
                            other_path));
  }
  const Snapshot snapshot(other_path, db.path());
  return explained(db.path(), "merging " + other_path, [&] {
    const Attached attached(db.db(), snapshot.path());
    db.db().exec(
        "CREATE TEMP TABLE merge_runs(uuid TEXT PRIMARY KEY);"
        "CREATE TEMP TABLE merge_numbers(\"of\" TEXT, old INTEGER, new INTEGER, "
        "PRIMARY KEY (\"of\", old)) WITHOUT ROWID");
    return db.write("merging " + other_path, [&] { return merge_attached(db, other_path); });
  });
}

}  // namespace dynamiccl
