#pragma once

#include <string>
#include <vector>

#include "db/reader.hpp"
#include "db/table.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {

struct NamedQuery {
  std::string name;
  std::string title;
  std::string description;  ///< what a row is
};

/// All named queries in the order of the listing.
std::vector<NamedQuery> named_queries();

/// How the verdicts of a named query's table came about; "" for a query that gives none.
std::string judging_method(const std::string& query);

/// Whether a query looks at QueryScope::vary.
bool takes_vary(const std::string& query);

/// Runs a named query. Figures come from launches and cells with status ok only, each with its
/// number of launches; one launch gives no interval.
/// @throws Error(input) for an unknown name (with the nearest one), run, column or axis, and where
/// nothing is left because --where names a backend, architecture, collective or datatype that there
/// is not
Table named_query(const Reader& reader, const std::string& name, const QueryScope& scope);

/// `query NAME or SQL`: one word is a named query, anything else SQL of the user's own.
/// @throws Error(input) as named_query and Reader::query, also when rows are to be chosen from SQL
Table any_query(const Reader& reader, const std::string& name_or_sql, const QueryScope& scope);

}  // namespace dynamiccl
