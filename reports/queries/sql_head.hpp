#pragma once

#include <string_view>

#include "reports/queries/query.hpp"

namespace dynamiccl {

/// A query from its SQL file, whose head says the rest:
///     -- title: Noise gate
///     -- row: what a row is; lines that go on are indented
///     -- columns:
///     --   as parse_columns() takes them
///     -- needs, measured_by, none_means: as Query has them (may be left out)
///     -- scope: all       (of all runs, unless some are named)
Query query_of_sql(std::string_view sql);

}  // namespace dynamiccl
