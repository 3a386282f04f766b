#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <string>
#include <string_view>
#include <vector>

namespace dynamiccl {

/// SQL that brings a database from `version - 1` to `version`.
struct Migration {
  int version = 0;
  std::string_view sql;
};

/// Everything that defines a database: the whole of its newest shape for a new file, and the steps
/// for an older one.
struct SchemaSet {
  std::string_view schema;            ///< all tables of the newest version
  std::string_view views;             ///< all views, made anew when their text changed
  std::vector<Migration> migrations;  ///< forward steps, versions 2, 3, ...

  [[nodiscard]] int version() const { return migrations.empty() ? 1 : migrations.back().version; }
};

/// The schema this program writes and reads.
const SchemaSet& current_schema();

/// Brings an empty or older database to the set's version in one transaction.
/// @throws Error(data) when the database is newer than the program
void migrate(SQLite::Database& db, const std::string& path, const SchemaSet& set);

/// @throws Error(data) unless the database has exactly the set's version
void require_current(SQLite::Database& db, const std::string& path, const SchemaSet& set);

/// What `db` reads are the set's views, also where the file, of the same version, holds those of
/// another program: TEMP views of the same names stand before them in this connection. The file is
/// not written. PRAGMA temp_store, if at all, comes before: a change of it drops them.
void read_through_views_of(SQLite::Database& db, const SchemaSet& set);

}  // namespace dynamiccl
