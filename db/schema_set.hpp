#pragma once

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
  std::string_view baseline;          ///< all tables of version 1
  std::string_view schema;            ///< all tables of the newest version
  std::string_view views;             ///< all views, made anew when their text changed
  std::vector<Migration> migrations;  ///< forward steps, versions 2, 3, ...

  [[nodiscard]] int version() const { return migrations.empty() ? 1 : migrations.back().version; }
};

/// The schema this program writes and reads.
const SchemaSet& current_schema();

}  // namespace dynamiccl
