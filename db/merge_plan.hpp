#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <string>
#include <vector>

namespace dynamiccl {

/// How the tables of the attached database "other" go into "main". Made from the schema itself, so
/// that a new table is merged without a line here: what refers to a run, however indirectly,
/// belongs to it; what does not is shared, and known by its UNIQUE column.
struct MergeColumn {
  std::string name;
  bool required = false;  ///< NOT NULL
  /// The table whose rows its values number, after following references; "" = a plain value.
  std::string numbers;
};

struct MergeTable {
  std::string name;
  bool owned = false;     ///< by a run
  bool numbered = false;  ///< its key `id` is a row number of its own, made anew
  std::string known_by;   ///< shared tables: the UNIQUE column
  std::vector<MergeColumn> columns;
};

/// In an order in which what is referred to comes first.
/// @throws Error(bug) for a table that is neither owned by a run nor known by a UNIQUE column
std::vector<MergeTable> merge_plan(SQLite::Database& db);

}  // namespace dynamiccl
