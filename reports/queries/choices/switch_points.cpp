#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "core/statistics/verdict.hpp"
#include "core/vocabulary/text.hpp"
#include "reports/model/cell_columns.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

/// One size: what the library does when nobody tells it, and the fastest of all that was measured.
struct SizePoint {
  const CellFigure* own = nullptr;
  const CellFigure* best = nullptr;
  std::int64_t measured = 0;
  Ratio ratio;  ///< time of the best / time of the library's own choice
  Verdict verdict = Verdict::unclear;
};
/// Sizes of one operation, rising.
using Line = std::map<std::int64_t, SizePoint>;

bool is_own_choice(const CellFigure& figure) {
  return figure.algorithm == "library" && (figure.cell_knobs.empty() || figure.cell_knobs == "{}");
}

std::string ran(const CellFigure& figure) {
  if (figure.algorithms_ran.empty()) return figure.algorithm;
  return joined_names(figure.algorithms_ran);
}

/// Algorithm and protocol without the channels and threads that ran: what a library switches.
std::string way_of(const CellFigure& figure) {
  const std::string whole =
      figure.algorithms_ran.empty() ? figure.algorithm : *figure.algorithms_ran.begin();
  return whole.substr(0, whole.find(','));
}

std::vector<Line> lines_of(const std::vector<CellFigure>& figures) {
  std::map<std::string, std::size_t> places;
  std::vector<Line> lines;
  for (const CellFigure& figure : figures) {
    const std::string key =
        fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", figure.run_id, figure.environment,
                    figure.backend, figure.architecture, figure.collective, figure.ranks,
                    figure.datatype, figure.in_place, figure.group_knobs);
    const auto [at, added] = places.emplace(key, lines.size());
    if (added) lines.emplace_back();
    SizePoint& point = lines[at->second][figure.size_bytes];
    ++point.measured;
    if (is_own_choice(figure)) point.own = &figure;
    if (point.best == nullptr || figure.median_us() < point.best->median_us()) point.best = &figure;
  }
  for (Line& line : lines)
    std::erase_if(line, [](const auto& size) {
      return size.second.own == nullptr || size.second.measured < 2;
    });
  std::erase_if(lines, [](const Line& line) { return line.empty(); });
  return lines;
}

/// All ratios of a run are one table: the fastest of many is sometimes fast by chance.
void judge(std::vector<Line>& lines) {
  std::vector<std::string> runs;
  std::vector<Ratio> ratios;
  for (Line& line : lines) {
    for (auto& [size, point] : line) {
      if (point.best != point.own) point.ratio = time_ratio(*point.best, *point.own);
      runs.push_back(point.own->run_id);
      ratios.push_back(point.ratio);
    }
  }
  const auto verdicts = judge_by_run(runs, ratios);
  auto verdict = verdicts.begin();
  for (Line& line : lines)
    for (auto& [size, point] : line) point.verdict = *verdict++;
}

std::vector<Value> row_of(const SizePoint& point, const SizePoint* smaller) {
  const CellFigure& own = *point.own;
  const CellFigure& best = *point.best;
  const bool is_best = point.best == point.own;
  const auto left = [](const CellFigure& now, const CellFigure* before) {
    return before != nullptr && way_of(*before) != way_of(now) ? Value{way_of(*before)} : Value{};
  };
  std::vector<Value> row{own.run_id,
                         own.environment,
                         own.backend,
                         own.architecture,
                         own.collective,
                         own.ranks,
                         own.datatype,
                         own.in_place,
                         own.group_knobs,
                         own.size_bytes,
                         point.measured,
                         ran(own),
                         own.median_us(),
                         left(own, smaller == nullptr ? nullptr : smaller->own),
                         ran(best),
                         or_null(best.cell_knobs == "{}" ? "" : best.cell_knobs),
                         best.median_us(),
                         left(best, smaller == nullptr ? nullptr : smaller->best),
                         is_best ? Value{1.0} : Value{point.ratio.value}};
  add_bounds(row, is_best ? std::nullopt : point.ratio.interval);
  row.push_back(is_best ? Value{} : Value{std::string(name_of(point.verdict))});
  row.emplace_back(static_cast<std::int64_t>(own.launches.size()));
  return row;
}

Table switch_table(const std::vector<CellFigure>& figures, const QueryScope&) {
  auto lines = lines_of(figures);
  judge(lines);
  Table table;
  for (const Line& line : lines) {
    const SizePoint* smaller = nullptr;
    for (const auto& [size, point] : line) {
      table.rows.push_back(row_of(point, smaller));
      smaller = &point;
    }
  }
  return table;
}

}  // namespace

Query switch_points_query() {
  return {
      .title = "Where the library switches, and where it should",
      .row =
          "one size of an operation of which settings were swept: what the library does by "
          "itself against the fastest that was measured, and which way each leaves there",
      .columns = R"(
run_id environment backend architecture collective ranks datatype in_place group_knobs size_bytes
measured | integer | how many settings were measured at this size, the library's own choice among them
library_runs | text | algorithm, protocol, channels and threads that ran without a setting, as far as the library reports
library_us | us, real | their median
library_left | text, optional | the algorithm and protocol that the library used at the next smaller size, where it is another
best_runs | text | what ran in the fastest
best_knobs | json | settings of the fastest, those of its launch apart
best_us | us, real | its median
best_left | text, optional | the algorithm and protocol that was the fastest at the next smaller size, where it is another
ratio verdict launches
)",
      .method = verdict_method() +
                "; the fastest of many is chosen after the fact, so that its ratio is too low by "
                "a little: `tune` confirms on fresh launches",
      .needs = "algorithms or settings of one operation, swept over sizes",
      .measured_by = "tune sweep experiments/tune_smoke.toml",
      .of_figures = switch_table};
}

}  // namespace dynamiccl
