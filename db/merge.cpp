#include "db/merge.hpp"

#include <SQLiteCpp/Backup.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/vocabulary/text.hpp"
#include "db/draft_database.hpp"
#include "db/merge_plan.hpp"
#include "db/migrations.hpp"
#include "db/statements.hpp"

namespace dynamiccl {
namespace {

/// A copy of the other database that may be brought forward to this program's schema. Made with
/// SQLite's own backup, so that what still lies in its WAL comes along. It has no name: who is
/// ended while merging leaves nothing.
class Snapshot {
 public:
  Snapshot(const std::string& other, const std::string& beside)
      : draft_(merging_name(beside), "name another database with --db") {
    constexpr int kCopies = 5;
    for (int copies = 0; copies < kCopies; ++copies) {
      const int running = copy(other);
      // One that has come to its end since the copy was made is dead as well, and was not killed.
      if (running == 0 || running_in(open_for_reading(other)) == running) return;
    }
  }
  [[nodiscard]] std::string uri() const { return draft_.uri(); }

 private:
  static int running_in(const SQLite::Database& db) {
    if (!db.tableExists("run")) return 0;
    SQLite::Statement count(db, "SELECT count(*) FROM run WHERE status = 'running'");
    return count.executeStep() ? count.getColumn(0).getInt() : 0;
  }
  /// @returns how many runs go on in it
  int copy(const std::string& other) {
    explained(other, "copying", [&] {
      SQLite::Database from = open_for_reading(other);
      SQLite::Database to = draft_.open();
      SQLite::Backup backup(to, from);
      backup.executeStep();
    });
    draft_.forget_log();
    SQLite::Database copied = draft_.open();
    migrate(copied, other, current_schema());
    const int running = running_in(copied);
    // Opening it ends the runs whose process is dead, so that killed ones are merged, too.
    if (running > 0) const Statements ended(std::move(copied), other);
    return running;
  }

  DraftDatabase draft_;
};

/// Attached as "other" while it lives.
class Attached {
 public:
  Attached(SQLite::Database& db, const std::string& uri) : db_(db) {
    const MayAttach other(db_);
    SQLite::Statement attach(db_, "ATTACH ? AS other");
    attach.bind(1, uri);
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
  return fmt::format("(SELECT n.new FROM temp.merge_numbers n WHERE n.of = {} AND n.old = {})",
                     quoted_text(table), value);
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
      conditions.push_back(fmt::format("{} IS NOT NULL",
                                       number_of(column.numbers, "r." + quoted_name(column.name))));
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
  const std::string kind = quoted_text(table.name);
  const std::string name = quoted_name(table.name);
  const std::string key = quoted_name(table.columns.front().name);
  if (table.owned) {
    execute_one(db, fmt::format("INSERT INTO temp.merge_numbers SELECT {0}, r.{2}, r.{2} + (SELECT "
                                "coalesce(max({2}), 0) FROM main.{1}) FROM other.{1} r WHERE {3}",
                                kind, name, key, comes(table)));
    return;
  }
  execute_one(db, fmt::format("INSERT INTO temp.merge_numbers SELECT {0}, r.{2}, m.{2} FROM "
                              "other.{1} r JOIN main.{1} m ON m.{3} = r.{3}",
                              kind, name, key, quoted_name(table.known_by)));
}

std::int64_t copy_rows(SQLite::Database& db, const MergeTable& table) {
  std::vector<std::string> names;
  std::vector<std::string> values;
  for (const auto& column : table.columns) {
    const std::string quoted = quoted_name(column.name);
    // A shared row gets the next free number.
    if (!table.owned && column.numbers == table.name) continue;
    names.push_back(quoted);
    values.push_back(column.numbers.empty() ? "r." + quoted
                                            : number_of(column.numbers, "r." + quoted));
  }
  const std::string name = quoted_name(table.name);
  const std::string known = table.owned ? comes(table)
                                        : fmt::format("r.{0} NOT IN (SELECT {0} FROM main.{1})",
                                                      quoted_name(table.known_by), name);
  return execute_one(db, fmt::format("INSERT INTO main.{0}({1}) SELECT {2} FROM other.{0} r WHERE "
                                     "{3}",
                                     name, join(names, ", "), join(values, ", "), known));
}

std::vector<std::string> texts(SQLite::Database& db, const std::string& sql) {
  std::vector<std::string> list;
  SQLite::Statement rows(db, sql);
  while (rows.executeStep()) list.push_back(rows.getColumn(0).getString());
  return list;
}

int number(SQLite::Database& db, const std::string& sql) { return db.execAndGet(sql).getInt(); }

/// SQL: `what` of the launches that `database` has of the run m.uuid.
std::string launches_of_run(const std::string& database, const std::string& what) {
  return fmt::format(
      "(SELECT {1} FROM {0}.launch l JOIN {0}.plan_group g ON g.id = l.group_id JOIN {0}.run u ON "
      "u.id = g.run_id WHERE u.uuid = m.uuid",
      database, what);
}

/// SQL: `what` of the choices that `database` has of the run m.uuid.
std::string choices_of_run(const char* database, const char* what) {
  return fmt::format(
      "SELECT {1} FROM {0}.decision d JOIN {0}.tuning t ON t.id = d.tuning_id JOIN {0}.run u ON "
      "u.id = t.run_id WHERE u.uuid = m.uuid",
      database, what);
}

/// A run that was merged before it was complete, and was resumed where it came from, or one of a
/// leader's file that has grown.
const std::string& has_more() {
  static const std::string condition =
      "m.status <> 'running' AND o.status <> 'running' AND (EXISTS " +
      launches_of_run("other", "1") + " AND l.uuid NOT IN (SELECT uuid FROM main.launch)) OR " +
      "(" + choices_of_run("other", "count(*)") + ") > (" + choices_of_run("main", "count(*)") +
      "))";
  return condition;
}

/// Nothing is here that did not come from there, or is there as well.
std::string all_is_there() {
  const auto tunings = [](const char* database) {
    return fmt::format(
        "(SELECT count(*) FROM {0}.tuning t JOIN {0}.run u ON u.id = t.run_id WHERE u.uuid = "
        "m.uuid)",
        database);
  };
  // Not by their tunings, whose time is that of an import.
  constexpr const char* kChoice =
      "t.agent, t.seed, d.task_key, d.step, d.kind, d.arm, d.calls, d.time_us";
  return "NOT EXISTS " + launches_of_run("main", "1") +
         " AND NOT EXISTS (SELECT 1 FROM other.launch c WHERE c.uuid = l.uuid AND (c.status = 'ok' "
         "OR l.status <> 'ok'))) AND " +
         tunings("main") + " <= " + tunings("other") + " AND NOT EXISTS (" +
         choices_of_run("main", kChoice) + " EXCEPT " + choices_of_run("other", kChoice) + ")";
}

/// Rows of an owned table here that belong to a run of temp.merge_runs.
std::string goes(const std::vector<MergeTable>& plan, const MergeTable& table) {
  if (table.name == "run") return "uuid IN (SELECT uuid FROM temp.merge_runs)";
  for (const auto& column : table.columns) {
    if (column.numbers.empty() || column.numbers == table.name) continue;
    if (!column.required && table.columns.front().name != column.name) continue;
    const auto owner = std::find_if(plan.begin(), plan.end(), [&](const auto& one) {
      return one.owned && one.name == column.numbers;
    });
    if (owner != plan.end())
      return fmt::format("{} IN (SELECT {} FROM main.{} WHERE {})", quoted_name(column.name),
                         quoted_name(owner->columns.front().name), quoted_name(owner->name),
                         goes(plan, *owner));
  }
  throw Error(ErrorKind::bug,
              fmt::format("table {} has no reference that it cannot be without", table.name));
}

/// Runs of which the other database knows more are taken out here, to come whole.
void make_way(SQLite::Database& db, const std::vector<MergeTable>& plan, MergeSummary& summary) {
  const std::string both = " FROM main.run m JOIN other.run o ON o.uuid = m.uuid WHERE ";
  execute_one(db, "INSERT INTO temp.merge_runs SELECT m.uuid" + both + has_more() + " AND " +
                      all_is_there());
  summary.grown = texts(db, "SELECT uuid FROM temp.merge_runs ORDER BY uuid");
  summary.diverged =
      number(db, "SELECT count(*)" + both + has_more()) - static_cast<int>(summary.grown.size());
  summary.already_there = number(db, "SELECT count(*)" + both + "o.status <> 'running'") -
                          summary.diverged - static_cast<int>(summary.grown.size());
  for (auto table = plan.rbegin(); table != plan.rend(); ++table)
    if (table->owned && !summary.grown.empty())
      execute_one(db, fmt::format("DELETE FROM main.{} WHERE {}", quoted_name(table->name),
                                  goes(plan, *table)));
}

/// What refers to rows that are not there would be left out without a word.
void require_sound(SQLite::Database& db, const std::vector<MergeTable>& plan,
                   const std::string& other_path) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::data,
                fmt::format("import: {} is damaged, or another program changed it: {}; nothing of "
                            "it was stored",
                            other_path, what));
  };
  SQLite::Statement known(db,
                          "SELECT 1 FROM other.sqlite_master WHERE type = 'table' AND name = ?");
  for (const auto& table : plan) {
    known.reset();
    known.bind(1, table.name);
    if (!known.executeStep()) refuse("it has no table " + table.name);
  }
  SQLite::Statement sound(db, "PRAGMA other.quick_check(1)");
  if (sound.executeStep() && sound.getColumn(0).getString() != "ok")
    refuse(sound.getColumn(0).getString());
  SQLite::Statement lost(db, "PRAGMA other.foreign_key_check");
  if (lost.executeStep())
    refuse(fmt::format("a row of its table {} refers to one of {} that is not there",
                       lost.getColumn(0).getString(), lost.getColumn(2).getString()));
}

/// The other database is attached as "other".
MergeSummary merge_attached(const Statements& statements, const std::string& other_path) {
  SQLite::Database& db = statements.db();
  MergeSummary summary;
  const auto plan = merge_plan(db);
  require_sound(db, plan, other_path);
  make_way(db, plan, summary);
  db.exec(
      "INSERT OR IGNORE INTO temp.merge_runs SELECT uuid FROM other.run WHERE status <> 'running' "
      "AND uuid NOT IN (SELECT uuid FROM main.run)");
  summary.running = number(db, "SELECT count(*) FROM other.run WHERE status = 'running'");
  if (number(db, "SELECT count(*) FROM temp.merge_runs") == 0) return summary;
  for (const auto& table : plan) {
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
  return explained(
      db.path(), "merging " + other_path,
      [&] {
        const EndedBySignals ended(db.db());  // whole or not at all
        const Attached attached(db.db(), snapshot.uri());
        db.db().exec(
            "CREATE TEMP TABLE merge_runs(uuid TEXT PRIMARY KEY);"
            "CREATE TEMP TABLE merge_numbers(\"of\" TEXT, old INTEGER, new INTEGER, "
            "PRIMARY KEY (\"of\", old)) WITHOUT ROWID");
        return db.write(
            "merging " + other_path, [&] { return merge_attached(db, other_path); },
            ErrorKind::input);
      },
      ErrorKind::input);
}

}  // namespace dynamiccl
