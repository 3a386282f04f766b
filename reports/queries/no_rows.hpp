#pragma once

#include <string>

#include "db/reader.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {

/// Why a named query has no rows, and what to type to have some: an empty table alone says neither.
/// Other runs of the database are asked for the same, the newest first.
/// @param query one whose table of this scope is empty
std::string why_no_rows(const Reader& reader, const Query& query, const QueryScope& scope);

}  // namespace dynamiccl
