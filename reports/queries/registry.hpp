#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "db/reader.hpp"
#include "db/table.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {

/// A folder of queries, and its heading where `query` lists them.
struct QueryTheme {
  std::string_view folder;
  std::string_view title;
  std::string_view measured_by;  ///< the verb and what follows that measures what its queries show
};

/// In the order of the listing.
const std::vector<QueryTheme>& query_themes();

/// All named queries, theme by theme.
const std::vector<Query>& all_queries();

/// @returns nullptr where there is none of that name
const Query* find_query(std::string_view name);

/// @throws Error(input) for an unknown name, with the nearest one
const Query& query_named(std::string_view name);

/// What the columns of a query's table hold; those of SQL of the user's own have no unit.
/// @param name_or_sql as any_query takes it
Columns columns_of(const std::string& name_or_sql, const Table& table);

/// Runs a named query. Figures come from launches and cells with status ok only, each with its
/// number of launches; one launch gives no interval.
/// @throws Error(input) for an unknown name (with the nearest one), run, column or axis, and where
/// nothing is left because --where names a backend, architecture, collective or datatype that there
/// is not
Table named_query(const Reader& reader, const std::string& name, const QueryScope& scope);

/// `query NAME or SQL`: one word is a named query, anything else SQL of the user's own.
/// @throws Error(input) as named_query and Reader::query, also when rows are to be chosen from SQL
Table any_query(const Reader& reader, const std::string& name_or_sql, const QueryScope& scope);

/// `query --markdown`: every query by theme, with its columns.
std::string queries_markdown();

}  // namespace dynamiccl
