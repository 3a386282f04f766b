#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <string>

#include "db/schema_set.hpp"

namespace dynamiccl {

/// Refuses a database whose tables, indexes and triggers are not those that DynamICCL gives its
/// version. What else stands in a schema runs when rows are read or written: generated columns,
/// checks, defaults, triggers, modules of virtual tables, expressions of indexes. Views alone may
/// be other ones: no connection of ours reads a file's views.
/// @throws Error(data) that names what is not ours
void require_own_schema(SQLite::Database& db, const std::string& path, const SchemaSet& set);

}  // namespace dynamiccl
