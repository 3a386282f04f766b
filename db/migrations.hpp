#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <string>

#include "db/schema_set.hpp"

namespace dynamiccl {

/// Brings an empty or older database to the set's version in one transaction.
/// @throws Error(data) when the database is newer than the program
void migrate(SQLite::Database& db, const std::string& path, const SchemaSet& set);

/// Makes the set's views anew; others go.
void remake_views(SQLite::Database& db, const SchemaSet& set);

/// `db` itself where it has the set's version, else a copy of it that was brought forward to it: a
/// temporary file without a name, which goes with the connection. The file is not written.
/// @throws Error(data) when the database is newer than the program
SQLite::Database as_current(SQLite::Database db, const std::string& path, const SchemaSet& set);

/// What `db` reads are the set's views, never the file's, which may be another program's: TEMP
/// views of the same names stand before them in this connection. The file is not written. PRAGMA
/// temp_store, if at all, comes before: a change of it drops them.
void read_through_views_of(SQLite::Database& db, const SchemaSet& set);

}  // namespace dynamiccl
