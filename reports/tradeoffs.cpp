#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "core/statistics/verdict.hpp"
#include "core/vocabulary/error.hpp"
#include "reports/exchanges.hpp"
#include "reports/figure_queries.hpp"
#include "reports/run_queries.hpp"
#include "reports/table_view.hpp"

namespace dynamiccl {
namespace {

/// Between a collective and the aspect in the column that holds both while the rows are judged.
constexpr char kSeparator = '|';
constexpr std::string_view kStartUp = "start-up";

CellFigure with_aspect(CellFigure figure, std::string_view aspect) {
  figure.collective += kSeparator;
  figure.collective += aspect;
  return figure;
}

/// The figures with the 95th percentile of each launch in place of its median. Launches with too
/// few iterations have none.
std::vector<CellFigure> tails(const Reader& reader, std::int64_t run,
                              const std::vector<CellFigure>& figures) {
  const Table table = reader.query(
      "SELECT run_id, environment, backend, architecture, collective, size_bytes, ranks, datatype, "
      "algorithm, in_place, group_knobs, cell_knobs, block, p95_us FROM v_measurement "
      "WHERE run_row = ?1 AND counts AND p95_us IS NOT NULL",
      {run});
  const TableView rows(table);
  std::map<std::pair<std::string, std::int64_t>, double> tail_of;
  for (std::size_t i = 0; i < rows.size(); ++i)
    tail_of[{key_without(figure_cell(rows, i), ""), rows.integer(i, "block")}] =
        rows.real(i, "p95_us").value_or(0);
  std::vector<CellFigure> result;
  for (CellFigure figure : figures) {
    const auto key = key_without(figure, "");
    std::erase_if(figure.launches, [&](const LaunchFigure& l) {
      return !tail_of.contains({key, l.block});
    });
    for (auto& launch : figure.launches) launch.median_us = tail_of.at({key, launch.block});
    if (!figure.launches.empty()) result.push_back(std::move(figure));
  }
  return result;
}

/// One figure per group: from the start of its first process until its last rank is connected.
std::vector<CellFigure> start_ups(const Reader& reader, std::int64_t run) {
  const Table table = reader.query(
      "SELECT v.run_id, v.environment, v.backend, v.architecture, '' AS collective, 0 AS "
      "size_bytes, v.ranks, '' AS datatype, '' AS algorithm, 0 AS in_place, v.group_knobs, '{}' AS "
      "cell_knobs, v.group_row, v.block, 1e6 * (max(k.ready_unix_s) - min(k.started_unix_s)) AS us "
      "FROM v_launch v JOIN launch_rank k ON k.launch_id = v.launch_row "
      "WHERE v.run_row = ?1 AND v.launch_status = 'ok' GROUP BY v.launch_row "
      "HAVING us > 0 ORDER BY v.group_row, v.block",
      {run});
  const TableView rows(table);
  std::vector<CellFigure> figures;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i == 0 || rows.integer(i, "group_row") != rows.integer(i - 1, "group_row"))
      figures.push_back(figure_cell(rows, i));
    LaunchFigure launch;
    launch.block = rows.integer(i, "block");
    launch.median_us = rows.real(i, "us").value_or(0);
    figures.back().launches.push_back(launch);
  }
  return figures;
}

std::vector<CellFigure> aspects_of(const Reader& reader, std::int64_t run,
                                   const std::string& vary) {
  const auto loaded = load_figures(reader, {run});
  const auto prepared = [&](const std::vector<CellFigure>& figures) {
    return vary == "architecture" ? as_exchanges(figures) : figures;
  };
  std::vector<CellFigure> all;
  for (const auto& figure : prepared(loaded)) all.push_back(with_aspect(figure, "time"));
  for (const auto& figure : prepared(tails(reader, run, loaded)))
    all.push_back(with_aspect(figure, "95th percentile"));
  for (const auto& figure : prepared(start_ups(reader, run)))
    all.push_back(with_aspect(figure, kStartUp));
  return all;
}

/// The column that held both becomes two.
void split_aspect(Table& table) {
  const auto at = *column_index(table, "collective");
  const auto behind = static_cast<std::ptrdiff_t>(at) + 1;
  table.columns.insert(table.columns.begin() + behind, "aspect");
  for (auto& row : table.rows) {
    const std::string both = plain_text(row[at]);
    const auto cut = both.find(kSeparator);
    row[at] = or_null(both.substr(0, cut));
    row.insert(row.begin() + behind, both.substr(cut + 1));
  }
}

/// What of an axis table counts for one line of findings.
struct Tally {
  std::vector<Value> place;  ///< run_id, factor, environment, collective, sizes
  std::int64_t comparisons = 0;
  std::int64_t sure = 0;
  std::map<std::string, std::int64_t> wins;  ///< sure ones by value of the factor
  std::vector<double> leads;                 ///< second against first of every comparison
};

std::string size_class(std::int64_t bytes) {
  constexpr std::int64_t kKiB = 1024;
  if (bytes < 64 * kKiB) return "small (< 64 KiB)";
  return bytes < 4 * kKiB * kKiB ? "medium (64 KiB to < 4 MiB)" : "large (>= 4 MiB)";
}

/// The second smallest of the times over the smallest; nullopt with fewer than two.
std::optional<double> lead_in(const std::vector<Value>& row, std::size_t begin, std::size_t end) {
  std::vector<double> times;
  for (std::size_t i = begin; i < end; ++i)
    if (const auto* time = std::get_if<double>(&row[i])) times.push_back(*time);
  std::sort(times.begin(), times.end());
  if (times.size() < 2 || times[0] <= 0) return std::nullopt;
  return times[1] / times[0];
}

void tally_axis(const std::vector<CellFigure>& figures, const std::string& factor,
                std::vector<Tally>& all) {
  QueryScope scope;
  scope.vary = factor;
  const Table table = axis_table(figures, scope);
  const TableView rows(table);
  const auto end = column_index(table, "winner");
  const auto behind_axes =
      column_index(table, factor == "cell_knobs" ? "group_knobs" : "cell_knobs");
  if (!end || !behind_axes) return;
  std::map<std::string, std::size_t> place_of;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string environment = factor == "environment" ? "" : rows.text(i, "environment");
    const std::string sizes = size_class(rows.integer(i, "size_bytes"));
    const std::string collective = rows.text(i, "collective");
    const auto [found, is_new] = place_of.emplace(
        fmt::format("{}|{}|{}|{}", rows.text(i, "run_id"), environment, collective, sizes),
        all.size());
    if (is_new)
      all.push_back({{rows.text(i, "run_id"), factor, or_null(environment), collective, sizes},
                     0,
                     0,
                     {},
                     {}});
    Tally& tally = all[found->second];
    ++tally.comparisons;
    if (const auto lead = lead_in(table.rows[i], *behind_axes + 1, *end))
      tally.leads.push_back(*lead);
    if (rows.text(i, "winner_is_sure") != "yes") continue;
    ++tally.sure;
    ++tally.wins[rows.text(i, "winner")];
  }
}

std::string finding_of(const Tally& tally) {
  if (tally.sure == 0) return "nothing sure";
  std::vector<std::pair<std::int64_t, std::string>> ranking;
  for (const auto& [value, wins] : tally.wins) ranking.emplace_back(-wins, value);
  std::sort(ranking.begin(), ranking.end());
  if (ranking.size() == 1) return ranking.front().second + " wins where it is sure";
  std::string text = "depends:";
  for (const auto& [wins, value] : ranking)
    text += fmt::format("{} {} ({})", text.back() == ':' ? "" : ",", value, -wins);
  return text;
}

/// A floor is held where NCCL is surely not slower, whether or not it is surely faster.
std::string floor_of(Verdict verdict, const Ratio& nccl_over_gloo) {
  const auto& interval = nccl_over_gloo.interval;
  if (verdict == Verdict::slower)
    return interval && interval->low > 2 ? "VIOLATED beyond 2 x" : "VIOLATED";
  return interval && interval->high <= 1 + EquivalenceBand{}.relative ? "held" : "UNCLEAR";
}

}  // namespace

Table tradeoffs_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                      const QueryScope& scope) {
  constexpr std::array<std::string_view, 6> kChoices{"environment", "backend",     "architecture",
                                                     "algorithm",   "group_knobs", "cell_knobs"};
  if (std::find(kChoices.begin(), kChoices.end(), scope.vary) == kChoices.end())
    throw Error(ErrorKind::input,
                fmt::format("tradeoffs: --vary {}: that is no choice; one of environment, backend, "
                            "architecture, algorithm, group_knobs, cell_knobs",
                            scope.vary));
  std::vector<CellFigure> figures;
  for (const std::int64_t run : runs)
    for (auto& figure : aspects_of(reader, run, scope.vary)) figures.push_back(std::move(figure));
  Table table = axis_table(figures, scope);
  split_aspect(table);
  if (scope.vary == "architecture") table.columns[*column_index(table, "ranks")] = "workers";
  return table;
}

Table findings_table(const std::vector<CellFigure>& figures, const QueryScope& /*scope*/) {
  Table table;
  table.columns = {"run_id", "factor", "environment", "collective",   "sizes",  "comparisons",
                   "sure",   "winner", "winner_sure", "typical_lead", "finding"};
  std::vector<Tally> all;
  for (const char* factor : {"environment", "backend", "algorithm", "group_knobs", "cell_knobs"})
    tally_axis(figures, factor, all);
  for (const auto& tally : all) {
    auto row = tally.place;
    row.emplace_back(tally.comparisons);
    row.emplace_back(tally.sure);
    const auto most =
        std::max_element(tally.wins.begin(), tally.wins.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    row.push_back(or_null(most == tally.wins.end() ? "" : most->first));
    row.emplace_back(most == tally.wins.end() ? std::int64_t{0} : most->second);
    row.push_back(or_null(tally.leads.empty() ? std::nullopt : std::optional(median(tally.leads))));
    row.emplace_back(finding_of(tally));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table floor_table(const std::vector<CellFigure>& given, const QueryScope& /*scope*/) {
  const auto figures = with_stated_memory(given);
  Table table;
  add_cell_columns(table);
  for (const char* name :
       {"launches", "nccl_us", "gloo_us", "ratio", "ratio_low", "ratio_high", "verdict", "floor"})
    table.columns.emplace_back(name);
  std::map<std::string, const CellFigure*> gloo;
  for (const auto& f : figures)
    if (f.backend == "gloo") gloo.emplace(key_without(f, "backend"), &f);
  std::vector<std::string> runs;
  std::vector<Ratio> ratios;
  for (const auto& f : figures) {
    const auto found = gloo.find(key_without(f, "backend"));
    if (f.backend != "nccl" || found == gloo.end()) continue;
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

}  // namespace dynamiccl
