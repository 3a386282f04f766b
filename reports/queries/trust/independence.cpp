#include "reports/model/figures.hpp"
#include "reports/model/trust.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

Table independence_table(const std::vector<CellFigure>& figures, const QueryScope& /*scope*/) {
  Table table;
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

}  // namespace

Query independence_query() {
  return {.title = "Independence of launches",
          .row = "one group: whether its launches depend on their order (permutation test)",
          .columns = R"(
run_id environment backend architecture ranks group_knobs launches cells
lag1 | real | correlation of a launch with the next
p_lag1 | real | chance of as much without dependence
trend | real | correlation with the order
p_trend | real | chance of as much without a trend
p_adjusted | real | the smaller of both, adjusted for the number of groups (Holm)
independence | text | FAILS, nothing against it, or too few launches to test
)",
          .of_figures = independence_table};
}

}  // namespace dynamiccl
