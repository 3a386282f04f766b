#include <algorithm>

#include "core/statistics/saturation.hpp"
#include "core/statistics/statistics.hpp"
#include "core/statistics/verdict.hpp"
#include "reports/model/c2c.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"

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
                         f.group_knobs,
                         static_cast<std::int64_t>(f.launches.size()),
                         c.intensity,
                         c.f_formula,
                         or_null(c.f_counted),
                         or_null(c.f_fitted),
                         c.c2c_predicted,
                         or_null(c.c2c_measured),
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
  row.push_back(or_null(c.step_samples ? std::optional(*c.step_samples * 1e6 / f.median_us())
                                       : std::nullopt));
  row.push_back(or_null(expected ? std::optional(samples / *expected) : std::nullopt));
  row.push_back(
      or_null(expected ? std::optional(100 * (*expected / f.median_us() - 1)) : std::nullopt));
  const bool is_best = saturation.best == &c;
  row.push_back(or_null(is_best && saturation.saturated ? kLosslessSaturated : ""));
  row.push_back(or_null(is_best ? saturation.advice : ""));
  return row;
}

Table c2c_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                const QueryScope& /*scope*/) {
  Table table;
  MeasuredTargets measured(reader);
  for (const std::int64_t run : runs) {
    const auto cells = c2c_cells(reader, run, load_figures(reader, {run}));
    const auto workloads = saturations(measured, run, cells);
    for (const auto& cell : cells) {
      const auto own = std::find_if(workloads.begin(), workloads.end(),
                                    [&](const auto& one) { return one.best == &cell; });
      table.rows.push_back(c2c_row(cell, own == workloads.end() ? Saturation{} : *own));
    }
  }
  return table;
}

}  // namespace

Query c2c_query() {
  return {.title = "Communication over computation",
          .row =
              "one training cell: C2C = f(N) / (M I) with f(N) by formula, counted and fitted, "
              "what a worker computes and a link carries, T_comm / T_comp of it and the "
              "measured one (expected: one after the other without scheduling, else the longer), "
              "and for the best method of a workload whether anything lossless is left",
          .columns = R"(
run_id environment backend model batch method settings workers group_knobs launches intensity
f_formula | real | volumes of all parameters over the busiest link in a step, by formula
f_counted | real | the same by counted bytes
f_fitted | real | the same from the measured cost per byte
c2c_predicted c2c_measured
worker_flop_per_second | real | FLOP/s of a worker
alpha_us | us, real | start-up time of a message
link_bytes_per_s | bytes_per_s, real | what the link carries, from the fit
fitted_from | text | cost table or micro-benchmark
compute_us | us, real | a step without communication, all workers at once
ratio_predicted | real | communication over computation, from C2C and the fit
ratio_measured | real | the same, measured
step_us
expected_us | us, real | the step as C2C and the fit have it
samples_per_second
expected_samples_per_second | real | samples of all workers, expected
gap_percent | percent, real | measured over expected step, less 1
flag | text | lossless_saturated where only sending less helps
advice | text | what would
)",
          .of_runs = c2c_table};
}

}  // namespace dynamiccl
