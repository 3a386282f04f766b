#include "db/merge_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {
namespace {

struct Reference {
  std::string table;
  std::string column;
};

struct Shape {
  std::vector<MergeColumn> columns;
  std::map<std::string, Reference> references;  ///< by column
  std::string row_key;                          ///< the INTEGER PRIMARY KEY, "" when there is none
  std::string unique_text;                      ///< a UNIQUE or primary key column of type TEXT
};

using Shapes = std::map<std::string, Shape>;

void read_columns(SQLite::Database& db, const std::string& table, Shape& shape) {
  SQLite::Statement columns(
      db,
      "SELECT name, type, \"notnull\", pk, (SELECT max(pk) FROM pragma_table_info(?1)) "
      "FROM pragma_table_info(?1)");
  columns.bind(1, table);
  while (columns.executeStep()) {
    const auto name = columns.getColumn(0).getString();
    shape.columns.push_back({name, columns.getColumn(2).getInt() != 0, ""});
    const bool only_key = columns.getColumn(3).getInt() == 1 && columns.getColumn(4).getInt() == 1;
    if (only_key && columns.getColumn(1).getString() == "INTEGER") shape.row_key = name;
    if (only_key && columns.getColumn(1).getString() == "TEXT") shape.unique_text = name;
  }
}

void read_references(SQLite::Database& db, const std::string& table, Shape& shape) {
  SQLite::Statement keys(db,
                         "SELECT \"from\", \"table\", coalesce(\"to\", '') "
                         "FROM pragma_foreign_key_list(?1)");
  keys.bind(1, table);
  while (keys.executeStep()) {
    shape.references[keys.getColumn(0).getString()] = {keys.getColumn(1).getString(),
                                                       keys.getColumn(2).getString()};
  }
}

void read_unique(SQLite::Database& db, const std::string& table, Shape& shape) {
  SQLite::Statement found(
      db,
      "SELECT min(c.name) FROM pragma_index_list(?1) i, pragma_index_info(i.name) c "
      "WHERE i.\"unique\" = 1 AND i.partial = 0 GROUP BY i.name HAVING count(*) = 1");
  found.bind(1, table);
  if (found.executeStep()) shape.unique_text = found.getColumn(0).getString();
}

Shapes read_shapes(SQLite::Database& db) {
  Shapes shapes;
  SQLite::Statement names(db,
                          "SELECT name FROM main.sqlite_master WHERE type = 'table' "
                          "AND name NOT LIKE 'sqlite_%' AND name <> 'meta'");
  while (names.executeStep()) shapes[names.getColumn(0).getString()];
  for (auto& [name, shape] : shapes) {
    read_columns(db, name, shape);
    read_references(db, name, shape);
    read_unique(db, name, shape);
  }
  return shapes;
}

/// Follows a reference to a part of a longer key on to the table that gives the number.
std::string numbered_by(const Shapes& shapes, const std::string& table, const std::string& column) {
  const Shape& shape = shapes.at(table);
  const auto reference = shape.references.find(column);
  if (reference == shape.references.end())
    return shape.row_key == column && !column.empty() ? table : "";
  const Shape& target = shapes.at(reference->second.table);
  const std::string to =
      reference->second.column.empty() ? target.row_key : reference->second.column;
  return numbered_by(shapes, reference->second.table, to);
}

bool belongs_to_run(const Shapes& shapes, const std::string& table, std::set<std::string>& seen) {
  if (table == "run") return true;
  if (!seen.insert(table).second) return false;
  const auto& references = shapes.at(table).references;
  return std::any_of(references.begin(), references.end(), [&](const auto& entry) {
    return belongs_to_run(shapes, entry.second.table, seen);
  });
}

void place(const Shapes& shapes, const std::string& table, std::set<std::string>& placed,
           std::vector<std::string>& order) {
  if (!placed.insert(table).second) return;
  for (const auto& [column, reference] : shapes.at(table).references)
    place(shapes, reference.table, placed, order);
  order.push_back(table);
}

}  // namespace

std::vector<MergeTable> merge_plan(SQLite::Database& db) {
  const Shapes shapes = read_shapes(db);
  std::set<std::string> placed;
  std::vector<std::string> order;
  for (const auto& [name, shape] : shapes) place(shapes, name, placed, order);
  std::vector<MergeTable> plan;
  for (const auto& name : order) {
    const Shape& shape = shapes.at(name);
    std::set<std::string> seen;
    MergeTable table{name, belongs_to_run(shapes, name, seen), false, "", shape.columns};
    for (auto& column : table.columns) column.numbers = numbered_by(shapes, name, column.name);
    table.numbered = !shape.row_key.empty() && !shape.references.contains(shape.row_key);
    if (!table.owned) {
      table.known_by = shape.unique_text;
      if (table.known_by.empty()) {
        throw Error(
            ErrorKind::bug,
            fmt::format("table {} refers to no run and has no UNIQUE column to be merged by",
                        name));
      }
    }
    plan.push_back(std::move(table));
  }
  return plan;
}

}  // namespace dynamiccl
