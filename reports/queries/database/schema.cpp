#include <sstream>

#include "core/vocabulary/text.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

bool names_column(const std::string& line, const std::string& column) {
  std::istringstream words(line.substr(0, line.find("--")));
  std::string word;
  std::string last;
  std::string first;
  while (words >> word) {
    if (first.empty()) first = word;
    last = word;
  }
  if (!last.empty() && last.back() == ',') last.pop_back();
  return first == column || last == column;
}

/// The comment on the line that defines the column: SQLite keeps the text of its definitions.
std::string comment_of(const std::string& definition, const std::string& column) {
  for (const auto& line : split(definition, '\n')) {
    const auto comment = line.find("-- ");
    if (comment == std::string::npos || !names_column(line, column)) continue;
    return std::string(trim(line.substr(comment + 3)));
  }
  return "";
}

Table schema_table(const Reader& reader) {
  // The reader's own views stand before the file's, which nothing reads.
  const Table columns = reader.query(
      "SELECT m.type AS kind, m.name AS relation, m.sql AS definition, p.name AS column_name, "
      "p.type AS type FROM (SELECT type, name, sql FROM sqlite_temp_master UNION ALL "
      "SELECT type, name, sql FROM sqlite_master WHERE type = 'table') m, "
      "pragma_table_info(m.name) p "
      "WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite_%' "
      "ORDER BY m.type, m.name, p.cid");
  const TableView rows(columns);
  Table table;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto column = rows.text(i, "column_name");
    table.rows.push_back({rows.text(i, "kind"), rows.text(i, "relation"), column,
                          or_null(rows.text(i, "type")),
                          or_null(comment_of(rows.text(i, "definition"), column))});
  }
  return table;
}

}  // namespace

Query schema_query() {
  return {.title = "Schema",
          .row = "one column of a table or view, for your own SQL",
          .columns = R"(
kind
name | text | table or view
column | text | its column
type | text | as SQLite declares it
meaning | text | the comment at its definition
)",
          .of_database = schema_table};
}

}  // namespace dynamiccl
