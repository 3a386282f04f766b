#pragma once

#include <string>
#include <vector>

#include "reports/model/cell_columns.hpp"

namespace dynamiccl {

/// Which rows a named query looks at.
struct QueryScope {
  /// Ids, unique prefixes, "last", "last~1"; empty = the newest run. More than one run: the result
  /// begins with a column run_id.
  std::vector<std::string> runs;
  bool all_runs = false;
  bool pool = false;  ///< the runs as one, where they are alike; queries of figures only
  CellConditions where;
  /// Queries that take it (takes_vary): the axis that varies while all others are fixed.
  std::string vary = "environment";
};

}  // namespace dynamiccl
