#include "reports/answer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/vocabulary/text.hpp"
#include "reports/c2c.hpp"
#include "reports/reports.hpp"
#include "reports/table_view.hpp"
#include "reports/training_report.hpp"
#include "reports/trust.hpp"

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

template <class Set>
void merge(Set& into, const Set& from) {
  into.insert(from.begin(), from.end());
}

std::string range_text(std::int64_t low, std::int64_t high) {
  return low == high ? std::to_string(low) : fmt::format("{}-{}", low, high);
}

std::string calls_text(const std::set<std::int64_t>& batches) {
  if (batches.empty() || *batches.rbegin() == 1) return "1 call";
  return range_text(*batches.begin(), *batches.rbegin()) + " calls";
}

}  // namespace

/// Rule: the method stands under every table (Hoefler, Belli SC'15, rule 10).
std::string figures_method(const std::vector<const CellFigure*>& figures,
                           const BareMetal& bare_metal) {
  CellFigure all;
  std::size_t least = figures.front()->launches.size();
  std::size_t most = least;
  std::set<std::string> ratios;
  bool mixed_ratios = false;
  std::set<std::string> intervals;
  for (const auto* f : figures) {
    least = std::min(least, f->launches.size());
    most = std::max(most, f->launches.size());
    merge(all.cadences, f->cadences);
    merge(all.barriers, f->barriers);
    merge(all.aggregations, f->aggregations);
    merge(all.batches, f->batches);
    if (const auto interval = f->interval()) intervals.insert(words_of_method(interval->method));
    const auto* base = bare_metal.of(*f);
    if (base == nullptr || base == f) continue;
    const auto ratio = time_ratio(*f, *base);
    if (ratio.interval) ratios.insert(words_of_method(ratio.interval->method));
    mixed_ratios |= cadences_of({f, base}).size() > 1;
  }
  const auto list = [](const std::set<std::string>& set) {
    return join({set.begin(), set.end()}, ", ");
  };
  std::string text = fmt::format(
      "method: {} of the ranks' times per iteration; {} cadence, {} per sample; barrier {}; "
      "median of {} launches' medians; ",
      list(all.aggregations), list(all.cadences), calls_text(all.batches),
      all.barriers.empty() ? "not recorded" : list(all.barriers),
      range_text(static_cast<std::int64_t>(least), static_cast<std::int64_t>(most)));
  text += most < 2            ? "one launch gives no interval"
          : intervals.empty() ? "two launches give no interval"
                              : fmt::format("[95 % interval: {}]", list(intervals));
  if (!ratios.empty()) text += "; ratio to bare-metal " + list(ratios);
  if (mixed_ratios)
    text += "; no interval of the ratio where environment and bare-metal have different cadences";
  return text;
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

Table cells_without_result(const Reader& reader, const std::string& run_uuid, bool unsupported) {
  return reader.query(
      "SELECT environment, backend, architecture, ranks, count(*) AS cells, status, reason "
      "FROM v_cell WHERE run_id = ?1 AND status <> 'ok' AND (status = 'unsupported') = ?2 "
      "GROUP BY environment, backend, architecture, ranks, status, reason "
      "ORDER BY environment, backend, architecture, ranks, status",
      {run_uuid, static_cast<std::int64_t>(unsupported ? 1 : 0)});
}

std::string cell_counts(const Reader& reader, const std::string& run_uuid) {
  const Table counts = reader.query(
      "SELECT status, count(*) AS n FROM v_cell WHERE run_id = ?1 GROUP BY status "
      "ORDER BY status = 'ok' DESC, status",
      {run_uuid});
  const TableView rows(counts);
  std::int64_t all = 0;
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    all += rows.integer(i, "n");
    parts.push_back(fmt::format("{} {}", rows.integer(i, "n"), rows.text(i, "status")));
  }
  return fmt::format("{} cells: {}", all, join(parts, ", "));
}

std::vector<std::int64_t> run_scope(const Reader& reader, const std::string& run_uuid) {
  const Table row = reader.query("SELECT id FROM run WHERE uuid = ?1", {run_uuid});
  return {TableView(row).integer(0, "id")};
}

std::string render_answer(const Reader& reader, const std::string& run_id) {
  const std::string run = reader.resolve_run(run_id);
  const Table info = reader.query("SELECT name, status FROM run WHERE uuid = ?1", {run});
  const TableView about(info);
  std::string out = fmt::format("run {} ({}), {}: {}\n", run, about.text(0, "name"),
                                about.text(0, "status"), cell_counts(reader, run));
  const auto figures = load_figures(reader, run_scope(reader, run));
  for (const auto& operation : operation_tables(figures)) {
    out += fmt::format("\n{}\n{}{}\n", operation.title,
                       render_table(operation.table, OutputFormat::text), operation.method);
  }
  const Table training =
      training_overview(training_report(reader, run_scope(reader, run).front(), figures));
  if (!training.rows.empty())
    out +=
        "\ntraining, medians over launches; over_ddp: step over the best ddp's in the same "
        "launches\n" +
        render_table(training, OutputFormat::text);
  auto notes = trust_notes(reader, run, figures);
  for (auto& note : saturation_notes(c2c_cells(reader, run_scope(reader, run).front(), figures)))
    notes.push_back(std::move(note));
  if (!notes.empty()) out += "\n" + join(notes, "\n") + "\n";
  const Table failures = cells_without_result(reader, run, false);
  if (!failures.rows.empty()) {
    out += "\nfailed or not measured\n" + render_table(failures, OutputFormat::text);
  }
  const Table unsupported = cells_without_result(reader, run, true);
  if (!unsupported.rows.empty()) {
    out += "\nunsupported here\n" + render_table(unsupported, OutputFormat::text);
  }
  return out;
}

}  // namespace dynamiccl
