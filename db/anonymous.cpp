#include "db/anonymous.hpp"

#include <SQLiteCpp/Backup.h>
#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <set>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/others_files.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "db/anonymous_words.hpp"
#include "db/connection.hpp"
#include "db/draft_database.hpp"
#include "db/migrations.hpp"
#include "db/own_schema.hpp"

namespace dynamiccl {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Columns that hold words of ours, digests and times, never text of the machine's.
const std::set<std::string>& closed_columns() {
  static const std::set<std::string> columns{"status",
                                             "architecture",
                                             "backend",
                                             "collective",
                                             "datatype",
                                             "cadence",
                                             "rank_aggregation",
                                             "role",
                                             "format",
                                             "mode",
                                             "kind",
                                             "key",
                                             "sha256",
                                             "uuid",
                                             "seed",
                                             "parameters_sha256",
                                             "transport",
                                             "barrier",
                                             "started_utc",
                                             "ended_utc",
                                             "at_utc",
                                             "imported_utc",
                                             "replay_of"};
  return columns;
}

struct Column {
  std::string table;
  std::string name;
};

std::vector<Column> text_columns(SQLite::Database& db) {
  std::vector<Column> columns;
  SQLite::Statement read(
      db,
      "SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c "
      "WHERE m.type = 'table' AND c.type = 'TEXT' AND m.name <> 'meta' ORDER BY 1, c.cid");
  while (read.executeStep())
    if (const auto name = read.getColumn(1).getString(); !closed_columns().contains(name))
      columns.push_back({read.getColumn(0).getString(), name});
  return columns;
}

void for_each_text(SQLite::Database& db, const Column& column,
                   const std::function<void(const std::string&)>& use) {
  SQLite::Statement read(db, fmt::format("SELECT DISTINCT {0} FROM {1} WHERE {0} IS NOT NULL",
                                         quoted_name(column.name), quoted_name(column.table)));
  while (read.executeStep()) use(read.getColumn(0).getString());
}

std::string changed(const Column& column, const std::string& text, Anonymizer& words) {
  if (column.name.ends_with("_json"))
    if (auto value = json_or_discarded(text); !value.is_discarded())
      return words.replaced(value).dump();
  // What opens as JSON and is none, or is too deep to be read: names in it would not be found.
  if (column.name.ends_with("_json") && text.find_first_of("[{") == 0) return "null";
  if (column.name == "spec_text") return words.replaced(without_comments(text));
  return words.replaced(text);
}

/// Through a table of what becomes of each text, so that rows are found whatever their key is.
void change_column(SQLite::Database& db, const Column& column, Anonymizer& words) {
  db.exec("CREATE TEMP TABLE changes (was TEXT PRIMARY KEY, becomes TEXT) WITHOUT ROWID");
  std::vector<std::string> texts;
  for_each_text(db, column, [&](const std::string& text) { texts.push_back(text); });
  SQLite::Statement note(db, "INSERT INTO temp.changes VALUES (?, ?)");
  for (const auto& text : texts) {
    const std::string becomes = changed(column, text, words);
    if (becomes == text) continue;
    note.bind(1, text);
    note.bind(2, becomes);
    note.exec();
    note.reset();
  }
  execute_one(db, fmt::format("UPDATE {0} SET {1} = (SELECT becomes FROM temp.changes WHERE was = "
                              "{1}) WHERE {1} IN (SELECT was FROM temp.changes)",
                              quoted_name(column.table), quoted_name(column.name)));
  db.exec("DROP TABLE temp.changes");
}

void collect(SQLite::Database& db, Anonymizer& words) {
  SQLite::Statement owners(db, "SELECT DISTINCT owner_host FROM run");
  while (owners.executeStep()) words.hide_host(owners.getColumn(0).getString());
  SQLite::Statement boots(db, "SELECT DISTINCT owner_boot_id FROM run");
  while (boots.executeStep()) words.hide_id(boots.getColumn(0).getString());
  for (const auto& column : text_columns(db))
    for_each_text(db, column, [&](const std::string& text) {
      if (column.table == "run" && column.name == "argv_json")
        words.look_at_command(json_or_discarded(text));
      if (column.name.ends_with("_json"))
        words.look_at(json_or_discarded(text));
      else if (column.name == "spec_path" || column.name == "source")
        words.look_at(json(text));
    });
}

/// Digests of what is replaced would let others try words until one fits.
void renew_digests(SQLite::Database& db) {
  for (const char* table : {"experiment", "profile"})
    db.exec(fmt::format("UPDATE {} SET sha256 = lower(hex(randomblob(32)))", table));
  db.exec("UPDATE imported_run SET sha256 = lower(hex(randomblob(32))) WHERE sha256 IS NOT NULL");
  db.exec("DELETE FROM meta WHERE key = 'identity'");
}

/// What stands in views, and what ANALYZE noted of rows, is not looked through.
void leave_out_others(SQLite::Database& db) {
  remake_views(db, current_schema());
  for (const char* counted : {"sqlite_stat1", "sqlite_stat4"})
    db.exec(fmt::format("DROP TABLE IF EXISTS {}", counted));
}

AnonymousSummary change_copy(SQLite::Database& db, const std::vector<std::string>& hidden) {
  db.exec("PRAGMA foreign_keys=OFF; PRAGMA secure_delete=ON");
  Anonymizer words;
  collect(db, words);
  for (const auto& word : hidden) words.hide_word(word);
  SQLite::Transaction all(db);
  db.exec("UPDATE launch SET stderr_tail = NULL");
  for (const auto& column : text_columns(db)) change_column(db, column, words);
  renew_digests(db);
  leave_out_others(db);
  all.commit();
  // Free pages still hold what was replaced.
  const MayAttach itself(db);
  db.exec("VACUUM");
  return words.summary();
}

}  // namespace

AnonymousSummary write_anonymous(const std::string& from, const std::string& to,
                                 const std::vector<std::string>& hidden) {
  require_no_strangers(to, "choose another place with --anonymous");
  // Until it is changed it is the whole database. What a killed one has left goes first.
  DraftDatabase draft(to, "choose another place with --anonymous");
  std::error_code ignored;
  if (fs::exists(to, ignored)) refuse_what_is_there(to);
  AnonymousSummary summary;
  explained(
      to, "writing the copy",
      [&] {
        SQLite::Database source = as_current(open_for_reading(from), from, current_schema());
        require_own_schema(source, from, current_schema());
        {
          SQLite::Database copy = draft.open();
          SQLite::Backup backup(copy, source);
          backup.executeStep();
        }
        draft.forget_log();
        SQLite::Database copy = draft.open();
        summary = change_copy(copy, hidden);
      },
      ErrorKind::input);
  draft.put_in_place();
  return summary;
}

}  // namespace dynamiccl
