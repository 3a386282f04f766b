#include "core/statistics/verdict.hpp"
#include "reports/model/cell_columns.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

/// "X % slower" divides the difference by the faster time, whichever of the two that is;
/// below 0 where the environment is the faster one.
double signed_difference_percent(double ratio) {
  return ratio < 1 ? -percent_faster(1, ratio) : percent_faster(ratio, 1);
}

Table overhead_table(const std::vector<CellFigure>& figures, const QueryScope&) {
  Table table;
  const BareMetal bare_metal(figures);
  std::vector<std::string> runs;
  std::vector<Ratio> ratios;
  std::vector<std::pair<const CellFigure*, const CellFigure*>> pairs;
  for (const auto& f : figures) {
    const CellFigure* base = bare_metal.of(f);
    if (base == nullptr || base == &f) continue;
    const Ratio ratio = time_ratio(f, *base);
    auto row = cell_values(f);
    append_values(row, {launches_of(f)});
    for (const auto* side : {&f, base}) {
      append_values(row, {side->median_us()});
      add_bounds(row, side->interval());
    }
    append_values(row, {ratio.value});
    add_bounds(row, ratio.interval);
    append_values(row, {or_null(ratio.interval ? ratio.interval->method : ""),
                        signed_difference_percent(ratio.value),
                        or_null(joined_names(cadences_of({&f, base})))});
    table.rows.push_back(std::move(row));
    runs.push_back(f.run_id);
    ratios.push_back(ratio);
    pairs.emplace_back(&f, base);
  }
  const auto verdicts = judge_by_run(runs, ratios);
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    const auto [figure, base] = pairs[i];
    const EquivalenceBand band;
    const auto of_waits = waits_note(ratios[i], verdicts[i], band);
    const auto of_medians = medians_note(*figure, *base, ratios[i], verdicts[i], band);
    const char* between = of_waits.empty() || of_medians.empty() ? "" : "; ";
    append_values(table.rows[i],
                  {std::string(name_of(verdicts[i])), or_null(of_waits + between + of_medians)});
  }
  return table;
}

}  // namespace

Query overhead_query() {
  return {.title = "Overhead of environments",
          .row =
              "one cell outside bare metal against the same cell there; ratio = typical one of the "
              "launches of a block, which can point the other way than the two medians (then note "
              "says so); difference_percent = difference divided by the faster time, above 0 where "
              "bare metal is the faster",
          .columns = R"(
@cell launches median_us
bare_metal_us | us, real, interval, if_room | the same cell on bare metal
ratio ratio_method
difference_percent | percent, real, for_programs | difference divided by the faster time; below 0 where bare metal is the slower
cadence verdict note
)",
          .method = verdict_method("ratio = the typical one of a block's launches, not that of the "
                                   "two medians; "),
          .needs = "the same cells on bare metal and in another environment",
          .of_figures = overhead_table,
          .of_all_cells = true};
}

}  // namespace dynamiccl
