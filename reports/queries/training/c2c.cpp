#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "core/statistics/saturation.hpp"
#include "core/statistics/statistics.hpp"
#include "core/statistics/verdict.hpp"
#include "reports/model/c2c.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"
#include "reports/queries/training_queries.hpp"

namespace dynamiccl {
namespace {

std::vector<Value> c2c_row(const C2cCell& c, const Saturation& saturation) {
  const CellFigure& f = c.figure;
  const auto expected = c.expected_us();
  const double samples = static_cast<double>(c.cell.workers * c.cell.batch) * 1e6;
  std::vector<Value> row{f.run_id,
                         f.environment,
                         f.backend,
                         c.cell.model,
                         c.cell.batch,
                         f.algorithm,
                         or_null(c.cell.settings.empty() ? "" : c.cell.settings.dump()),
                         c.cell.workers,
                         static_cast<std::int64_t>(f.launches.size()),
                         c.intensity,
                         c.f_formula,
                         c.f_counted,
                         or_null(c.f_fitted),
                         c.c2c_predicted,
                         c.c2c_measured,
                         c.flops_per_s,
                         or_null(c.alpha_us),
                         or_null(c.link_bytes_per_s()),
                         or_null(c.fitted_from),
                         c.compute_us,
                         or_null(c.ratio_predicted()),
                         or_null(c.ratio_measured()),
                         f.median_us()};
  add_bounds(row, f.interval());
  row.push_back(or_null(expected));
  row.emplace_back(samples / f.median_us());
  row.push_back(or_null(expected ? std::optional(samples / *expected) : std::nullopt));
  row.push_back(
      or_null(expected ? std::optional(100 * (*expected / f.median_us() - 1)) : std::nullopt));
  const bool is_best = saturation.best == &c;
  row.push_back(or_null(is_best && saturation.saturated ? kLosslessSaturated : ""));
  row.push_back(or_null(is_best ? saturation.advice : ""));
  return row;
}

}  // namespace

Table c2c_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                const QueryScope& /*scope*/) {
  Table table;
  table.columns = {"run_id",
                   "environment",
                   "backend",
                   "model",
                   "batch",
                   "method",
                   "settings",
                   "workers",
                   "launches",
                   "intensity",
                   "f_formula",
                   "f_counted",
                   "f_fitted",
                   "c2c_predicted",
                   "c2c_measured",
                   "worker_flop_per_second",
                   "alpha_us",
                   "link_bytes_per_s",
                   "fitted_from",
                   "compute_us",
                   "ratio_predicted",
                   "ratio_measured",
                   "step_us",
                   "step_low_us",
                   "step_high_us",
                   "expected_us",
                   "samples_per_second",
                   "expected_samples_per_second",
                   "gap_percent",
                   "flag",
                   "advice"};
  for (const std::int64_t run : runs) {
    const auto cells = c2c_cells(reader, run, load_figures(reader, {run}));
    const auto workloads = saturations(cells);
    for (const auto& cell : cells) {
      const auto own = std::find_if(workloads.begin(), workloads.end(),
                                    [&](const auto& one) { return one.best == &cell; });
      table.rows.push_back(c2c_row(cell, own == workloads.end() ? Saturation{} : *own));
    }
  }
  return table;
}

}  // namespace dynamiccl
