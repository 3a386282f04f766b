#include <fmt/format.h>

#include <map>

#include "core/vocabulary/text.hpp"
#include "reports/model/c2c.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/operation_tables.hpp"
#include "reports/model/run_facts.hpp"
#include "reports/model/synchronisation_warnings.hpp"
#include "reports/model/table_view.hpp"
#include "reports/model/training_report.hpp"
#include "reports/model/trust.hpp"
#include "reports/queries/query.hpp"
#include "reports/queries/registry.hpp"
#include "reports/render/answer.hpp"
#include "reports/render/humanise.hpp"
#include "reports/render/render.hpp"
#include "reports/render/report.hpp"

namespace dynamiccl {
namespace {

std::string section(const std::string& title, const Table& table, const Columns& columns = {},
                    const std::string& note = "") {
  if (table.rows.empty()) return "";
  return fmt::format("\n## {}\n\n{}{}", title, note.empty() ? "" : note + "\n\n",
                     render_table(table, OutputFormat::markdown, columns));
}

std::string method_sentence(const Query& query) {
  return query.method.empty() ? "" : "\n\n" + query.method;
}

std::string named_section(const Reader& reader, const std::string& run, const std::string& name) {
  QueryScope scope;
  scope.runs = {run};
  const Query& query = query_named(name);
  const Table table = named_query(reader, name, scope);
  return section(query.title, table, columns_of(name, table),
                 "A row is " + query.row + "." + method_sentence(query));
}

std::string axis_section(const Reader& reader, const std::string& run, const std::string& axis) {
  QueryScope scope;
  scope.runs = {run};
  scope.vary = axis;
  const Table table = named_query(reader, "axis", scope);
  return section("Which " + axis, table, columns_of("axis", table),
                 "All other axes are fixed in a row; the winner against the next." +
                     method_sentence(query_named("axis")));
}

std::string head(const Reader& reader, const std::string& run) {
  const Table info = reader.query(
      "SELECT r.name, r.status, r.started_utc, r.ended_utc, r.tool_version, r.seed, r.spec_path, "
      "r.protocol_json, e.sha256 FROM run r JOIN experiment e ON e.id = r.experiment_id "
      "WHERE r.uuid = ?1",
      {run});
  const TableView row(info);
  return fmt::format(
      "# {}\n\nRun `{}`, {}, {} to {}. {}.\n\nDynamICCL {}, experiment `{}` (SHA-256 {}), seed {}, "
      "protocol `{}`.\n",
      markdown_text(row.text(0, "name")), run, row.text(0, "status"), row.text(0, "started_utc"),
      row.text(0, "ended_utc").empty() ? "now" : row.text(0, "ended_utc"), cell_counts(reader, run),
      row.text(0, "tool_version"), row.text(0, "spec_path"), row.text(0, "sha256"),
      row.text(0, "seed"), row.text(0, "protocol_json"));
}

constexpr const char* kCsvColumns =
    "run_id regime environment backend architecture collective size_bytes ranks datatype "
    "algorithm in_place group_knobs cell_knobs launches status reason median_us median_low_us "
    "median_high_us interval_method algbw_bytes_per_s busbw_bytes_per_s ratio_to_bare_metal "
    "ratio_low ratio_high ratio_method cadence barrier rank_aggregation algorithm_ran "
    "collective_us h2d_us d2h_us send_us compute_us";

std::string joined(const std::set<std::string>& texts) {
  return join({texts.begin(), texts.end()}, " ");
}

std::vector<Value> interval_values(const std::optional<Interval>& interval) {
  if (!interval) return {Value{}, Value{}, Value{}};
  return {interval->low, interval->high, interval->method};
}

void append(std::vector<Value>& row, const std::vector<Value>& more) {
  row.insert(row.end(), more.begin(), more.end());
}

/// The part of a CSV row that only a measured cell has.
std::vector<Value> figure_values(const CellFigure& f, const BareMetal& bare_metal) {
  std::vector<Value> row{f.median_us()};
  append(row, interval_values(f.interval()));
  append(row, {f.algbw_bytes_per_s(), or_null(f.busbw_bytes_per_s())});
  const CellFigure* base = bare_metal.of(f);
  if (base != nullptr) {
    const Ratio ratio = base == &f ? Ratio{1.0} : time_ratio(f, *base);
    append(row, {ratio.value});
    append(row, interval_values(ratio.interval));
  } else {
    append(row, {Value{}, Value{}, Value{}, Value{}});
  }
  append(row,
         {or_null(joined(f.cadences)), or_null(joined(f.barriers)), or_null(joined(f.aggregations)),
          or_null(joined(f.algorithms_ran)), or_null(f.component_us(&LaunchFigure::collective_us)),
          or_null(f.component_us(&LaunchFigure::h2d_us)),
          or_null(f.component_us(&LaunchFigure::d2h_us)),
          or_null(f.component_us(&LaunchFigure::send_us)),
          or_null(f.component_us(&LaunchFigure::compute_us))});
  return row;
}

}  // namespace

std::string render_report_markdown(const Reader& reader, const std::string& run_id) {
  const std::string run = reader.resolve_run(run_id);
  std::string out = head(reader, run);
  for (const char* query : {"design_space", "regimes", "transports"}) {
    out += named_section(reader, run, query);
  }
  const auto figures = load_figures(reader, run_scope(reader, run));
  for (const auto& operation : operation_tables(figures)) {
    out += section(operation.title, operation.table, operation_columns());
    out += "\n" + operation.method + "\n";
  }
  out += section("Training", training_report(reader, run_scope(reader, run).front(), figures),
                 training_columns(),
                 "Medians over launches; over_ddp: step time over the best PyTorch DDP's of the "
                 "same launches.");
  out += named_section(reader, run, "overhead");
  out += named_section(reader, run, "best");
  for (const char* query : {"findings", "flips", "floor", "line_rate", "interconnect", "atlas"})
    out += named_section(reader, run, query);
  for (const char* axis : {"environment", "backend", "architecture"}) {
    out += axis_section(reader, run, axis);
  }
  out += named_section(reader, run, "components");
  out += named_section(reader, run, "copy_share");
  const std::int64_t run_row = run_scope(reader, run).front();
  const auto saturated = saturation_notes(reader, run_row, c2c_cells(reader, run_row, figures));
  if (!saturated.empty())
    out += "\n## Where only sending less helps\n\n* " + join(saturated, "\n* ") + "\n";
  const auto warnings = synchronisation_warnings(reader, run_row, figures);
  if (!warnings.empty())
    out += "\n## Where synchronous steps are known to be a bad choice\n\n* " +
           join(warnings, "\n* ") + "\n";
  const auto notes = trust_notes(reader, run, figures);
  if (!notes.empty())
    out += "\n## How far the figures can be trusted\n\n* " + join(notes, "\n* ") + "\n";
  out += section("Failed or not measured", cells_without_result(reader, run, false));
  out += section("Unsupported here", cells_without_result(reader, run, true));
  out += named_section(reader, run, "failures");
  return out;
}

std::string render_report_figures(const Reader& reader, const std::string& run_id,
                                  OutputFormat format) {
  const std::string run = reader.resolve_run(run_id);
  const auto figures = load_figures(reader, run_scope(reader, run));
  const BareMetal bare_metal(figures);
  std::map<std::string, const CellFigure*> by_cell;
  // "" is no axis, so that nothing is left out of the key.
  for (const auto& figure : figures) by_cell[key_without(figure, "")] = &figure;
  const Table cells = reader.query(
      "SELECT run_id, environment, backend, architecture, collective, size_bytes, ranks, datatype, "
      "algorithm, in_place, group_knobs, cell_knobs, launches, status, reason FROM v_cell "
      "WHERE run_id = ?1 ORDER BY cell_row",
      {run});
  const TableView rows(cells);
  Table table;
  table.columns = split(kCsvColumns, ' ');
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto found = by_cell.find(key_without(figure_cell(rows, i), ""));
    const CellFigure* figure = found == by_cell.end() ? nullptr : found->second;
    auto& row = table.rows.emplace_back();
    row = {run, figure == nullptr ? Value{} : or_null(joined(figure->regimes))};
    const auto& cell = cells.rows[i];
    row.insert(row.end(), cell.begin() + 1, cell.end());
    if (figure != nullptr) append(row, figure_values(*figure, bare_metal));
    row.resize(table.columns.size());
  }
  return render_table(table, format);
}

}  // namespace dynamiccl
