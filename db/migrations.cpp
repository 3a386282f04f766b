#include "db/migrations.hpp"

#include <SQLiteCpp/Backup.h>
#include <fmt/format.h>

#include "core/vocabulary/digest.hpp"
#include "core/vocabulary/error.hpp"
#include "db/connection.hpp"
#include "db/own_schema.hpp"

namespace dynamiccl {
namespace {

int version_of(SQLite::Database& db) { return db.execAndGet("PRAGMA user_version").getInt(); }

[[noreturn]] void refuse_newer(const std::string& path, int have, int know) {
  throw Error(ErrorKind::data,
              fmt::format("database {}: its schema has version {}, this program knows {}; it is "
                          "left untouched: use the newer DynamICCL that wrote it, or name another "
                          "database with --db",
                          path, have, know));
}

/// No program of ours writes a version below 0.
void refuse_impossible(const std::string& path, int have) {
  if (have >= 0) return;
  throw Error(ErrorKind::data,
              fmt::format("database {}: its schema has version {}, which no DynamICCL writes: "
                          "something else changed it, and it is left untouched; take a copy of it "
                          "from before, or name another database with --db",
                          path, have));
}

bool views_are_current(SQLite::Database& db, const std::string& digest) {
  SQLite::Statement stored(db, "SELECT value FROM meta WHERE key = 'views_sha256'");
  return stored.executeStep() && stored.getColumn(0).getString() == digest;
}

void drop_views(SQLite::Database& db) {
  // A step may rename or drop a column that an old view names.
  std::vector<std::string> old;
  SQLite::Statement names(db, "SELECT name FROM sqlite_master WHERE type = 'view'");
  while (names.executeStep()) old.push_back(names.getColumn(0).getString());
  names.reset();
  for (const auto& name : old) execute_one(db, "DROP VIEW " + quoted_name(name));
}

/// The same views for one connection; each begins a line.
std::string temporary(std::string_view views) {
  constexpr std::string_view kCreate = "CREATE VIEW ";
  std::string text(views);
  for (std::size_t at = text.find(kCreate); at != std::string::npos; at = text.find(kCreate, at)) {
    const bool begins_line = at == 0 || text[at - 1] == '\n';
    if (begins_line) text.replace(at, kCreate.size(), "CREATE TEMP VIEW ");
    at += kCreate.size();
  }
  return text;
}

/// @returns the table of a row that refers to one that is not there; "" = there is none
std::string broken_reference(SQLite::Database& db) {
  SQLite::Statement check(db, "PRAGMA foreign_key_check");
  return check.executeStep() ? check.getColumn(0).getString() : "";
}

void require_sound_references(SQLite::Database& db, const std::string& path) {
  if (const auto table = broken_reference(db); !table.empty())
    throw Error(ErrorKind::data,
                fmt::format("database {}: is damaged, or another program changed it: a row of its "
                            "table {} refers to one that is not there; it is left untouched. Take "
                            "a copy from before, or name another database with --db",
                            path, table));
}

}  // namespace

void remake_views(SQLite::Database& db, const SchemaSet& set) {
  drop_views(db);
  db.exec(std::string(set.views));
  SQLite::Statement store(db,
                          "INSERT INTO meta(key, value) VALUES ('views_sha256', ?) "
                          "ON CONFLICT (key) DO UPDATE SET value = excluded.value");
  store.bind(1, sha256_hex(set.views));
  store.exec();
}

void migrate(SQLite::Database& db, const std::string& path, const SchemaSet& set) {
  const std::string digest = sha256_hex(set.views);
  const int known = set.version();
  // The first look at a file may need more of it: its log, and an index of that.
  const bool current = opened(path, [&] {
    const int before = version_of(db);
    if (before > known) refuse_newer(path, before, known);
    refuse_impossible(path, before);
    require_own_schema(db, path, set);
    return before == known && views_are_current(db, digest);
  });
  if (current) return;
  explained(path, "migrating", [&] {
    // Steps may rebuild a table that others refer to; the check before the commit makes up for it.
    db.exec("PRAGMA foreign_keys=OFF");
    SQLite::Transaction transaction(db, SQLite::TransactionBehavior::EXCLUSIVE);
    // Another process may have been faster while this one waited.
    int version = version_of(db);
    if (version > known) refuse_newer(path, version, known);
    if (version == 0) {
      db.exec(std::string(set.schema));
      db.exec(fmt::format("PRAGMA application_id = {}", kApplicationId));
      version = known;
    }
    require_sound_references(db, path);
    const bool steps = version < known;
    if (steps) drop_views(db);
    for (const auto& step : set.migrations) {
      if (step.version <= version) continue;
      DYN_ASSERT(step.version == version + 1, "migrations are listed without gaps");
      db.exec(std::string(step.sql));
      version = step.version;
    }
    if (steps || !views_are_current(db, digest)) remake_views(db, set);
    if (const auto table = steps ? broken_reference(db) : ""; !table.empty())
      throw Error(ErrorKind::bug, fmt::format("database {}: a migration broke a reference of table "
                                              "{}; nothing was changed",
                                              path, table));
    db.exec(fmt::format("PRAGMA user_version = {}", known));
    transaction.commit();
    db.exec("PRAGMA foreign_keys=ON");
  });
}

SQLite::Database as_current(SQLite::Database db, const std::string& path, const SchemaSet& set) {
  const int version = version_of(db);
  if (version > set.version()) refuse_newer(path, version, set.version());
  refuse_impossible(path, version);
  if (version == set.version()) return db;
  require_own_schema(db, path, set);
  SQLite::Database copy("", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  distrust(copy);
  SQLite::Backup(copy, db).executeStep();
  migrate(copy, path, set);
  copy.exec("PRAGMA query_only=ON; PRAGMA cache_size=-65536");
  return copy;
}

void read_through_views_of(SQLite::Database& db, const SchemaSet& set) {
  // The main database is opened read-only; only the connection's own, in memory, is written here.
  db.exec("PRAGMA query_only=OFF");
  db.exec(temporary(set.views));
  db.exec("PRAGMA query_only=ON");
}

}  // namespace dynamiccl
