#include "reports/model/operation_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/vocabulary/text.hpp"
#include "reports/model/figures_method.hpp"
#include "reports/model/table_view.hpp"

namespace dynamiccl {
namespace {

auto operation_of(const CellFigure& f) {
  return std::tie(f.architecture, f.collective, f.ranks, f.datatype, f.in_place);
}

void add_bandwidth(std::vector<Value>& row, const CellFigure& f) {
  const auto bandwidth = f.busbw_bytes_per_s();
  row.push_back(or_null(bandwidth));
  auto interval = f.interval();
  if (bandwidth && interval && f.median_us() > 0) {
    // The longest time is the lowest bandwidth.
    const double product = *bandwidth * f.median_us();
    interval = Interval{product / interval->high, product / interval->low, interval->confidence,
                        interval->method};
  }
  add_bounds(row, bandwidth ? interval : std::nullopt);
}

std::vector<Value> answer_row(const CellFigure& f, const BareMetal& bare_metal) {
  std::vector<Value> row{f.size_bytes,  f.environment, f.backend,    f.algorithm,
                         f.group_knobs, f.cell_knobs,  f.median_us()};
  add_bounds(row, f.interval());
  add_bandwidth(row, f);
  const CellFigure* base = bare_metal.of(f);
  if (base == nullptr || base == &f) {
    row.resize(row.size() + 3);
  } else {
    const Ratio ratio = time_ratio(f, *base);
    row.emplace_back(ratio.value);
    add_bounds(row, ratio.interval);
  }
  row.emplace_back(static_cast<std::int64_t>(f.launches.size()));
  row.push_back(or_null(join({f.regimes.begin(), f.regimes.end()}, ", ")));
  row.emplace_back(f.drifting);
  return row;
}

Table answer_table(std::vector<const CellFigure*> figures, const BareMetal& bare_metal) {
  std::stable_sort(figures.begin(), figures.end(), [](const auto* a, const auto* b) {
    return std::tuple(a->size_bytes, environment_order(a->environment), a->backend) <
           std::tuple(b->size_bytes, environment_order(b->environment), b->backend);
  });
  Table table;
  table.columns = {"size_bytes",
                   "environment",
                   "backend",
                   "algorithm",
                   "group_knobs",
                   "cell_knobs",
                   "median_us",
                   "median_low_us",
                   "median_high_us",
                   "busbw_bytes_per_s",
                   "busbw_low_bytes_per_s",
                   "busbw_high_bytes_per_s",
                   "x bare-metal",
                   "x bare-metal_low",
                   "x bare-metal_high",
                   "launches",
                   "regime",
                   "drifting"};
  for (const auto* figure : figures) table.rows.push_back(answer_row(*figure, bare_metal));
  const bool drifts =
      std::any_of(figures.begin(), figures.end(), [](const auto* f) { return f->drifting > 0; });
  if (!drifts) {
    table.columns.pop_back();
    for (auto& row : table.rows) row.pop_back();
  }
  return table;
}

}  // namespace

Columns operation_columns() {
  return with_shared(parse_columns(
      "busbw_bytes_per_s | bytes_per_s, real, interval | bus bandwidth, as nccl-tests has it\n"
      "x bare-metal | real, interval | time over that of the same cell on bare metal",
      "operation_tables"));
}

std::vector<OperationTable> operation_tables(const std::vector<CellFigure>& figures) {
  const BareMetal bare_metal(figures);
  std::vector<OperationTable> tables;
  std::vector<const CellFigure*> sorted;
  for (const auto& figure : figures) sorted.push_back(&figure);
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
    return operation_of(*a) < operation_of(*b);
  });
  auto begin = sorted.begin();
  while (begin != sorted.end()) {
    const CellFigure& first = **begin;
    const auto end = std::find_if(begin, sorted.end(), [&](const auto* f) {
      return operation_of(*f) != operation_of(first);
    });
    const std::vector<const CellFigure*> mine(begin, end);
    tables.push_back({fmt::format("{} {}, {} rank{}, {}{}", first.architecture, first.collective,
                                  first.ranks, first.ranks == 1 ? "" : "s", first.datatype,
                                  first.in_place != 0 ? ", in place" : ""),
                      answer_table(mine, bare_metal), figures_method(mine, bare_metal)});
    begin = end;
  }
  return tables;
}

}  // namespace dynamiccl
