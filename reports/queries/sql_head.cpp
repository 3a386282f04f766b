#include "reports/queries/sql_head.hpp"

#include <fmt/format.h>

#include <string>

#include "core/vocabulary/text.hpp"

namespace dynamiccl {
namespace {

/// Value of a "-- key: value" line at the head of a query file; lines that go on with it begin with
/// "--   ".
std::string header_of(std::string_view sql, std::string_view key, char between = ' ') {
  constexpr std::string_view kGoesOn = "--   ";
  const std::string prefix = fmt::format("-- {}:", key);
  std::string value;
  bool found = false;
  for (const auto& line : split(std::string(sql), '\n')) {
    if (found && line.starts_with(kGoesOn)) {
      value += between + line.substr(kGoesOn.size());
      continue;
    }
    if (found || !line.starts_with("--")) break;
    found = line.starts_with(prefix);
    if (found) value = trim(line.substr(prefix.size()));
  }
  return value;
}

}  // namespace

Query query_of_sql(std::string_view sql) {
  Query query;
  query.title = header_of(sql, "title");
  query.row = header_of(sql, "row");
  query.columns = header_of(sql, "columns", '\n');
  query.needs = header_of(sql, "needs");
  query.measured_by = header_of(sql, "measured_by");
  query.none_means = header_of(sql, "none_means");
  query.every_run = header_of(sql, "scope") == "all";
  query.sql = sql;
  return query;
}

}  // namespace dynamiccl
