#include "reports/model/figures.hpp"
#include "reports/model/trust.hpp"
#include "reports/queries/figure_queries.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {

Table independence_table(const std::vector<CellFigure>& figures, const QueryScope& /*scope*/) {
  Table table;
  table.columns = {"run_id",      "environment", "backend",    "architecture", "ranks",
                   "group_knobs", "launches",    "cells",      "lag1",         "p_lag1",
                   "trend",       "p_trend",     "p_adjusted", "independence"};
  for (const auto& group : test_groups(figures)) {
    const auto& g = group.group;
    std::vector<Value> row{g.run_id,
                           g.environment,
                           g.backend,
                           g.architecture,
                           g.ranks,
                           g.group_knobs,
                           static_cast<std::int64_t>(group.launches),
                           static_cast<std::int64_t>(group.cells)};
    if (group.test) {
      for (const double value :
           {group.test->lag1, group.test->p_lag1, group.test->trend, group.test->p_trend, group.p})
        row.emplace_back(value);
    } else {
      row.resize(row.size() + 5);
    }
    row.emplace_back(std::string(!group.test     ? "too few launches to test"
                                 : group.fails() ? "FAILS"
                                                 : "nothing against it"));
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace dynamiccl
