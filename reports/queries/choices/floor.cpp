#include <map>

#include "core/statistics/verdict.hpp"
#include "core/vocabulary/backend.hpp"
#include "reports/model/cell_columns.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

/// A floor is held where NCCL is surely not slower, whether or not it is surely faster.
std::string floor_of(Verdict verdict, const Ratio& nccl_over_gloo) {
  const auto& interval = nccl_over_gloo.interval;
  if (verdict == Verdict::slower)
    return interval && interval->low > 2 ? "VIOLATED beyond 2 x" : "VIOLATED";
  return interval && interval->high <= 1 + EquivalenceBand{}.relative ? "held" : "UNCLEAR";
}

Table floor_table(const std::vector<CellFigure>& given, const QueryScope& /*scope*/) {
  const auto figures = with_stated_memory(given);
  Table table;
  std::map<std::string, const CellFigure*> floors;
  for (const auto& f : figures)
    if (f.backend == name_of(floor_backend())) floors.emplace(key_without(f, "backend"), &f);
  std::vector<std::string> runs;
  std::vector<Ratio> ratios;
  for (const auto& f : figures) {
    const auto found = floors.find(key_without(f, "backend"));
    if (f.backend != name_of(Backend::nccl) || found == floors.end()) continue;
    auto row = cell_values(f);
    row.emplace_back(static_cast<std::int64_t>(f.launches.size()));
    row.emplace_back(f.median_us());
    row.emplace_back(found->second->median_us());
    ratios.push_back(time_ratio(f, *found->second));
    runs.push_back(f.run_id);
    row.emplace_back(ratios.back().value);
    add_bounds(row, ratios.back().interval);
    table.rows.push_back(std::move(row));
  }
  const auto verdicts = judge_by_run(runs, ratios);
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    table.rows[i].emplace_back(std::string(name_of(verdicts[i])));
    table.rows[i].emplace_back(floor_of(verdicts[i], ratios[i]));
  }
  return table;
}

}  // namespace

Query floor_query() {
  return {.title = "Floor check",
          .row = "one cell of NCCL against the same cell of Gloo: is it slower than that floor?",
          .columns = R"(
@cell launches
nccl_us | us, real | median of NCCL
gloo_us | us, real | median of Gloo
ratio verdict
floor | text | held, VIOLATED, VIOLATED beyond 2 x, or UNCLEAR
)",
          .method = verdict_method(),
          .needs = "NCCL and Gloo in the same cells, so GPUs",
          .measured_by = "run experiments/gpu_environments.toml",
          .of_figures = floor_table,
          .of_all_cells = true};
}

}  // namespace dynamiccl
