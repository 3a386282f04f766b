#include <fmt/format.h>

#include "core/vocabulary/text.hpp"
#include "core/wire/work_settings.hpp"
#include "reports/model/alternatives.hpp"
#include "reports/model/cell_columns.hpp"
#include "reports/model/exchanges.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

std::vector<Value> best_row(const Alternatives& group) {
  const auto& candidates = group.cells;
  const CellFigure& best = *candidates.front();
  std::vector<Value> row{best.run_id,
                         best.environment,
                         or_null(join({best.regimes.begin(), best.regimes.end()}, ", ")),
                         best.collective,
                         best.size_bytes,
                         best.ranks,
                         best.datatype,
                         best.in_place,
                         static_cast<std::int64_t>(candidates.size()),
                         best.backend,
                         best.architecture,
                         best.algorithm,
                         or_null(knobs_of(best)),
                         static_cast<std::int64_t>(best.launches.size()),
                         best.median_us()};
  add_bounds(row, best.interval());
  const Value cadence = or_null(cadence_text(group));
  if (candidates.size() < 2) {
    row.resize(row.size() + 8);
    row.push_back(cadence);
    return row;
  }
  const CellFigure& second = *candidates[1];
  const CellFigure& worst = *candidates.back();
  const Ratio lead = lead_ratio(candidates);
  row.emplace_back(choice_of(second));
  row.emplace_back(second.median_us());
  row.emplace_back(lead.value);
  add_bounds(row, lead.interval);
  row.push_back(sure_text(group.lead_is_sure));
  row.emplace_back(choice_of(worst));
  row.emplace_back(worst.median_us());
  row.push_back(cadence);
  return row;
}

Table best_table(const std::vector<CellFigure>& figures, const QueryScope&) {
  Table table;
  const auto key = [](const CellFigure& f) {
    if (!compares_by_time(f)) return std::string();  // query time_to_target ranks those
    return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", f.run_id, f.environment, f.collective,
                       f.size_bytes, f.ranks, f.datatype, f.in_place, work_part_of(f.cell_knobs));
  };
  auto groups = alternatives_by(figures, key);
  judge_leads(groups);
  for (const auto& group : groups) table.rows.push_back(best_row(group));
  return table;
}

}  // namespace

Query best_query() {
  return {.title = "Best choice",
          .row = "one operation, size and environment: fastest and slowest of what was measured",
          .columns = R"(
run_id environment regime collective size_bytes ranks datatype in_place
candidates | integer, if_room | how many were measured
best_backend | text | backend of the fastest
best_architecture | text, if_room | architecture of the fastest
best_algorithm | text, if_room | algorithm of the fastest
best_knobs | json | settings of the fastest
launches median_us runner_up
runner_up_median_us | us, real, if_room | median of the second
lead lead_is_sure worst
worst_median_us | us, real, if_room | median of the slowest
cadence
)",
          .method = verdict_method(),
          .of_figures = best_table};
}

}  // namespace dynamiccl
