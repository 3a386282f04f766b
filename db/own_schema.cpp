#include "db/own_schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {
namespace {

/// Definitions in normal form by kind ("table") and name.
using Definitions = std::map<std::pair<std::string, std::string>, std::string>;

bool is_name_letter(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return std::isalnum(byte) != 0 || c == '_' || c == '$' || byte >= 0x80;
}

/// Where the blank, comment, word, quoted text or sign ends with which `sql` begins, as SQLite
/// takes it apart.
std::size_t end_of_token(std::string_view sql) {
  const auto past = [&](std::string_view end, std::size_t from) {
    const auto found = sql.find(end, from);
    return found == std::string_view::npos ? sql.size() : found + end.size();
  };
  if (sql.starts_with("--")) return past("\n", 2);
  if (sql.starts_with("/*")) return past("*/", 2);
  if (sql.front() == '[') return past("]", 1);
  if (std::string_view("'\"`").find(sql.front()) != std::string_view::npos)
    return past(sql.substr(0, 1), 1);
  const auto letters = std::find_if_not(sql.begin(), sql.end(), is_name_letter) - sql.begin();
  return std::max<std::size_t>(1, static_cast<std::size_t>(letters));
}

/// Comments, blanks and quotes around plain names differ between a table that was made and one that
/// came of steps: SQLite keeps the text of its definitions.
std::string normal_form(std::string_view sql) {
  constexpr std::string_view kBlank = " \t\n\f\r";
  std::string form;
  for (std::size_t end = 0; !sql.empty(); sql.remove_prefix(end)) {
    end = end_of_token(sql);
    std::string_view token = sql.substr(0, end);
    if (kBlank.find(token.front()) != std::string_view::npos || token.starts_with("--") ||
        token.starts_with("/*"))
      continue;
    if (token.size() > 2 && token.front() == '"' && token.back() == '"' &&
        std::all_of(token.begin() + 1, token.end() - 1, is_name_letter))
      token = token.substr(1, token.size() - 2);
    form += token;
    form += '\n';
  }
  return form;
}

Definitions definitions_of(SQLite::Database& db) {
  Definitions found;
  SQLite::Statement rows(db, "SELECT type, name, sql FROM main.sqlite_master");
  while (rows.executeStep()) {
    const auto sql = rows.getColumn(2).getString();
    found[{rows.getColumn(0).getString(), rows.getColumn(1).getString()}] = normal_form(sql);
  }
  return found;
}

/// What SQLite adds itself: an index for each key, and what ANALYZE counts.
bool is_of_sqlite(const std::string& name, const std::string& form) {
  static const std::map<std::string, std::string, std::less<>> counted{
      {"sqlite_stat1", normal_form("CREATE TABLE sqlite_stat1(tbl,idx,stat)")},
      {"sqlite_stat4", normal_form("CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)")}};
  const auto known = counted.find(name);
  return (form.empty() && name.starts_with("sqlite_autoindex_")) ||
         (known != counted.end() && known->second == form);
}

/// SQLite follows the text of a definition, whatever kind the row says.
bool is_view(const std::string& kind, const std::string& name, const std::string& form) {
  return kind == "view" && form.starts_with("CREATE\nVIEW\n") && !name.starts_with("sqlite_");
}

/// What a database of the version holds. Made once: an import opens several databases.
Definitions ours(const SchemaSet& set, int version) {
  if (version == 0) return {};
  std::string sql(version == set.version() ? set.schema : set.baseline);
  for (const auto& step : set.migrations)
    if (version != set.version() && step.version <= version) sql += step.sql;
  thread_local std::map<std::string, Definitions> made;
  const auto known = made.find(sql);
  if (known != made.end()) return known->second;
  SQLite::Database db(":memory:", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  db.exec(sql);
  return made[sql] = definitions_of(db);
}

[[noreturn]] void refuse(const std::string& path, const std::string& kind, std::string name,
                         const std::string& what) {
  constexpr std::size_t kMostLetters = 60;
  if (name.size() > kMostLetters) name = name.substr(0, kMostLetters) + "...";
  throw Error(ErrorKind::data,
              fmt::format("database {}: the {} \"{}\" of its schema {}, and a schema can hold what "
                          "runs when rows are read or written; it is left untouched. Take a copy "
                          "from before it was changed, or name another database with --db",
                          path, kind.substr(0, kMostLetters), name, what));
}

}  // namespace

void require_own_schema(SQLite::Database& db, const std::string& path, const SchemaSet& set) {
  // Another process may be making the tables: version and tables are of one moment.
  const SQLite::Transaction moment(db);
  auto expected = ours(set, db.execAndGet("PRAGMA user_version").getInt());
  for (const auto& [key, form] : definitions_of(db)) {
    const auto& [kind, name] = key;
    const auto own = expected.find(key);
    if (own == expected.end() && !is_of_sqlite(name, form) && !is_view(kind, name, form))
      refuse(path, kind, name, "is none of DynamICCL's");
    if (own == expected.end()) continue;
    if (own->second != form) refuse(path, kind, name, "is not as DynamICCL makes it");
    expected.erase(own);
  }
  if (!expected.empty())
    refuse(path, expected.begin()->first.first, expected.begin()->first.second, "is missing");
}

}  // namespace dynamiccl
