#include "reports/render/comparison_render.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/terminal_lines.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"
#include "reports/compare/comparison.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/table_view.hpp"
#include "reports/render/humanise.hpp"
#include "reports/render/render.hpp"

namespace dynamiccl {
namespace {

using nlohmann::ordered_json;

/// Axes that name a row; the compared one is what the sides differ in.
std::vector<std::string> row_axes(const Comparison& comparison) {
  std::vector<std::string> axes;
  for (const auto& axis : axis_names()) {
    if (axis != comparison.a.selection.axis) axes.push_back(axis);
  }
  return axes;
}

Value axis_cell(const CellFigure& figure, const std::string& axis) {
  if (axis == "size_bytes") return figure.size_bytes;
  if (axis == "ranks") return figure.ranks;
  if (axis == "in_place") return figure.in_place;
  return axis_value(figure, axis);
}

/// Sides without a value in common are compared all the same: both are shown.
Value axis_of_both(const ComparedCell& cell, const std::string& axis) {
  const std::string a = axis_value(cell.a, axis);
  const std::string b = axis_value(cell.b, axis);
  return a == b ? axis_cell(cell.a, axis) : Value(a + " | " + b);
}

void add_interval(std::vector<Value>& row, double value, const std::optional<Interval>& interval) {
  row.emplace_back(value);
  add_bounds(row, interval);
}

std::string verdict_text(const ComparedCell& cell) { return std::string(name_of(cell.verdict)); }

std::int64_t count_of(const CellFigure& figure) {
  return static_cast<std::int64_t>(figure.launches.size());
}

/// Environment and backend say nothing in a row when no row differs.
void drop_constant(Table& table, const std::string& column, std::string& held) {
  const auto at = column_index(table, column);
  if (!at || table.rows.size() < 2) return;
  const auto& first = table.rows.front()[*at];
  if (!std::all_of(table.rows.begin(), table.rows.end(),
                   [&](const auto& row) { return row[*at] == first; })) {
    return;
  }
  const std::string text = plain_text(first);
  if (!text.empty()) held += (held.empty() ? "" : ", ") + column + " " + text;
  const auto place = static_cast<std::ptrdiff_t>(*at);
  table.columns.erase(table.columns.begin() + place);
  for (auto& row : table.rows) row.erase(row.begin() + place);
}

/// A run that came to no end has fewer launches than were planned, of some cells none.
std::string incomplete_text(const ComparisonSide& side) {
  if (side.run_status == "complete") return "";
  return fmt::format(", NOT COMPLETE: {}", side.run_status);
}

std::string side_line(const char* name, const ComparisonSide& side) {
  const std::string machines = machines_text(side.machines);
  return fmt::format("{}: {}, run {} ({}, {}){}{}{}\n", name, side.selection.label, side.run_id,
                     side.run_name, side.started_utc, machines.empty() ? "" : ", on " + machines,
                     incomplete_text(side),
                     side.imported ? ", imported: a foreign table, no launches of ours" : "");
}

std::set<std::string> interval_methods(const Comparison& comparison) {
  std::set<std::string> methods;
  for (const auto& cell : comparison.cells) {
    if (cell.time_ratio.interval) methods.insert(cell.time_ratio.interval->method);
  }
  return methods;
}

std::string methods_of(const Comparison& comparison) {
  std::set<std::string> texts;
  for (const auto& method : interval_methods(comparison)) texts.insert(words_of_method(method));
  if (texts.empty()) return "ratio of medians without interval (fewer than three launches)";
  return "[95 % interval] over launches: " + join({texts.begin(), texts.end()}, "; else ");
}

/// What the ratio is: it depends on how many launches there are and on whether they are paired.
std::string ratio_text(const Comparison& comparison) {
  const auto methods = interval_methods(comparison);
  std::vector<std::string> texts;
  if (methods.contains("signed-rank-paired") || methods.contains("rank-sum"))
    texts.emplace_back(
        "time of a launch of B / of A, typical of their pairs (Hodges-Lehmann), not that of the "
        "two medians");
  if (methods.contains("t-log-paired"))
    texts.emplace_back(
        "time of a launch of B / of A, median of their pairs (fewer than six), not that of the two "
        "medians");
  if (methods.contains("welch-log"))
    texts.emplace_back(
        "median of B's launches / of A's (not paired, and fewer than six of a side or of unlike "
        "spread)");
  return "ratio = " + join(texts, "; else ");
}

std::string method_line(const Comparison& comparison) {
  const double band = comparison.options.band.relative;
  if (comparison.judged == 0)
    return "method: ratio = time of B / time of A; " + methods_of(comparison);
  const std::string table =
      comparison.options.correct_for_table
          ? fmt::format(
                "FASTER and SLOWER at a false discovery rate of {} % over the {} cells judged "
                "(Benjamini-Hochberg)",
                format_number(100 * comparison.options.false_discovery_rate), comparison.judged)
          : "each cell is judged as if it were the only one";
  return fmt::format(
      "method: {}; {}; equal means within {} % ([{:.4f}, {:.4f}]): SAME when the interval is "
      "wholly inside, FASTER or SLOWER when wholly outside, else UNCLEAR; NOT JUDGED where waits "
      "for a core may explain what the times say; {}",
      ratio_text(comparison), methods_of(comparison), format_number(100 * band), 1 / (1 + band),
      1 + band, table);
}

std::string counts_text(const Comparison& comparison) {
  std::vector<std::string> parts;
  for (const auto& entry : NameTable<Verdict>::entries) {
    const int count = comparison.count(entry.value);
    if (count > 0) parts.push_back(fmt::format("{} {}", count, entry.name));
  }
  return fmt::format("{}: {}", counted(comparison.cells.size(), "cell"), join(parts, ", "));
}

/// The slowest and the fastest row of those that are surely so.
std::string extremes(const Comparison& comparison) {
  std::string text;
  for (const auto verdict : {Verdict::slower, Verdict::faster}) {
    const ComparedCell* most = nullptr;
    for (const auto& cell : comparison.cells) {
      if (cell.verdict != verdict) continue;
      if (most == nullptr || std::fabs(std::log(cell.time_ratio.value)) >
                                 std::fabs(std::log(most->time_ratio.value))) {
        most = &cell;
      }
    }
    if (most == nullptr) continue;
    text += fmt::format("most {}: {} {} {} {} at {} x\n",
                        verdict == Verdict::slower ? "SLOWER" : "FASTER", most->b.environment,
                        most->b.backend, most->b.collective,
                        format_bytes(Bytes(static_cast<std::uint64_t>(most->b.size_bytes))),
                        format_number(most->time_ratio.value));
  }
  return text;
}

std::string difference_lines(const std::string& title, const std::vector<Difference>& differences) {
  if (differences.empty()) return "";
  std::string text = "\n" + title + "\n";
  for (const auto& d : differences) text += fmt::format("  {}: A {} | B {}\n", d.what, d.a, d.b);
  return text;
}

std::string missing_lines(const Comparison& comparison) {
  std::string text;
  for (const auto& group : missing_groups(comparison.missing))
    text += fmt::format("  {}: no result in {}: {}\n", group.what, group.missing_in, group.reason);
  if (!text.empty()) text = "\nmeasured on one side only: counted as UNCLEAR\n" + text;
  if (const int cells = comparison.unplanned_in("B"); cells > 0)
    text += fmt::format("{} of A {} not in B's plan\n", counted(cells, "cell"),
                        cells == 1 ? "is" : "are");
  if (const int cells = comparison.unplanned_in("A"); cells > 0)
    text += fmt::format("{} of B {} not in A's plan\n", counted(cells, "cell"),
                        cells == 1 ? "is" : "are");
  return text;
}

/// What speaks for and against the figures: what both runs say alike once, the rest by side.
std::string trust_lines(const Comparison& comparison) {
  const auto& of_a = comparison.a.trust;
  const auto& of_b = comparison.b.trust;
  const auto holds = [](const std::vector<std::string>& notes, const std::string& note) {
    return std::find(notes.begin(), notes.end(), note) != notes.end();
  };
  std::string text;
  for (const auto& note : of_a)
    text += fmt::format("  {}: {}\n", holds(of_b, note) ? "A and B" : "A", note);
  for (const auto& note : of_b) {
    if (!holds(of_a, note)) text += fmt::format("  B: {}\n", note);
  }
  return text.empty() ? "" : "\nhow far the figures can be trusted\n" + text;
}

ordered_json side_json(const ComparisonSide& side) {
  return {{"label", side.selection.label}, {"db", side.selection.db},
          {"run_id", side.run_id},         {"run_name", side.run_name},
          {"run_status", side.run_status}, {"started_utc", side.started_utc},
          {"nodes", side.machines.nodes},  {"machines", side.machines.names},
          {"imported", side.imported},     {"trust", side.trust}};
}

ordered_json differences_json(const std::vector<Difference>& differences) {
  auto list = ordered_json::array();
  for (const auto& d : differences)
    list.push_back(ordered_json{{"what", d.what}, {"a", d.a}, {"b", d.b}});
  return list;
}

}  // namespace

Table comparison_table(const Comparison& comparison) {
  Table table;
  const auto axes = row_axes(comparison);
  table.columns = axes;
  for (const char* name : {"a_us", "a_low_us", "a_high_us", "b_us", "b_low_us", "b_high_us",
                           "ratio", "ratio_low", "ratio_high", "ratio_method", "launches_a",
                           "launches_b", "verdict", "launches_needed", "note"}) {
    table.columns.emplace_back(name);
  }
  for (const auto& cell : comparison.cells) {
    auto& row = table.rows.emplace_back();
    for (const auto& axis : axes) row.push_back(axis_of_both(cell, axis));
    add_interval(row, cell.a.median_us(), cell.a.interval());
    add_interval(row, cell.b.median_us(), cell.b.interval());
    add_interval(row, cell.time_ratio.value, cell.time_ratio.interval);
    row.push_back(or_null(cell.time_ratio.interval ? cell.time_ratio.interval->method : ""));
    row.emplace_back(count_of(cell.a));
    row.emplace_back(count_of(cell.b));
    row.emplace_back(verdict_text(cell));
    row.push_back(cell.launches_needed ? Value{std::int64_t{*cell.launches_needed}} : Value{});
    row.push_back(or_null(cell.note));
  }
  return table;
}

std::string render_comparison(const Comparison& comparison, OutputFormat format,
                              std::size_t width) {
  if (format == OutputFormat::csv) return render_table(comparison_table(comparison), format);
  Table table = comparison_table(comparison);
  std::string held;
  for (const char* column : {"environment", "backend", "architecture", "collective", "note"})
    drop_constant(table, column, held);
  std::string above = side_line("A", comparison.a) + side_line("B", comparison.b) + "\n";
  if (!held.empty()) above += held + "\n";
  const std::string cells =
      render_table(table, format,
                   with_shared(parse_columns("a_us | us, real, interval | time of A\n"
                                             "b_us | us, real, interval | time of B",
                                             "comparison")),
                   width);
  std::string out = fmt::format("\n{}; together: {}\n{}", counts_text(comparison),
                                name_of(comparison.overall()), extremes(comparison));
  out += method_line(comparison) + "\n";
  out += missing_lines(comparison);
  out += trust_lines(comparison);
  out += difference_lines("compared although the method differs", comparison.method);
  out += difference_lines("provenance that differs", comparison.provenance);
  // Markdown is broken by who shows it.
  const std::size_t columns = format == OutputFormat::text ? width : 0;
  return broken_text(above, columns) + cells + broken_text(out, columns);
}

std::string comparison_json(const Comparison& comparison, int exit_code) {
  auto cells = ordered_json::parse(render_table(comparison_table(comparison), OutputFormat::json));
  auto missing = ordered_json::array();
  for (const auto& cell : comparison.missing) {
    ordered_json entry;
    for (const auto& axis : axis_names()) entry[axis] = axis_value(cell.figure, axis);
    entry["missing_in"] = cell.missing_in;
    entry["reason"] = cell.reason;
    missing.push_back(std::move(entry));
  }
  ordered_json counts;
  for (const auto& entry : NameTable<Verdict>::entries)
    counts[std::string(entry.name)] = comparison.count(entry.value);
  const ordered_json document = {
      {"a", side_json(comparison.a)},
      {"b", side_json(comparison.b)},
      {"axis", comparison.a.selection.axis},
      {"band", comparison.options.band.relative},
      {"confidence", 0.95},
      {"correction", comparison.options.correct_for_table ? "benjamini-hochberg" : "none"},
      {"false_discovery_rate", comparison.options.false_discovery_rate},
      {"verdict", name_of(comparison.overall())},
      {"counts", counts},
      {"only_in_a", comparison.unplanned_in("B")},
      {"only_in_b", comparison.unplanned_in("A")},
      {"exit_code", exit_code},
      {"cells", std::move(cells)},
      {"missing", std::move(missing)},
      {"method_differences", differences_json(comparison.method)},
      {"provenance_differences", differences_json(comparison.provenance)}};
  return document.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace dynamiccl
