#include "reports/queries/query.hpp"

#include <fmt/format.h>

#include "core/statistics/verdict.hpp"

namespace dynamiccl {

Table empty_table(std::string_view columns) {
  Table table;
  for (auto& column : parse_columns(columns, "query"))
    table.columns.push_back(std::move(column.name));
  return table;
}

std::string verdict_method(const std::string& first) {
  return fmt::format(
      "method: {}sure (FASTER, SLOWER) = the ratio lies outside {:g} % at a false discovery rate "
      "of 5 % over all rows judged of a run (Benjamini-Hochberg); SAME = its 95 % interval lies "
      "inside; what was timed by different cadences is not judged: a mean of calls back to back "
      "(batched) is shorter than a call alone (isolated); in launches that the noise gate flagged, "
      "what ranks waited for a core is taken off the side that it makes longer, and what the times "
      "say without it is said",
      first, 100 * EquivalenceBand{}.relative);
}

}  // namespace dynamiccl
