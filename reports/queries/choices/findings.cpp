#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/statistics/statistics.hpp"
#include "reports/model/alternatives.hpp"
#include "reports/model/exchanges.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

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

/// Of servers and rings what both do, at equal workers; of backends with their memory by name.
std::vector<CellFigure> prepared_for(const std::string& factor,
                                     const std::vector<CellFigure>& given) {
  if (factor == "architecture") return as_exchanges(given);
  return factor == "backend" ? with_stated_memory(given) : given;
}

void tally_axis(const std::vector<CellFigure>& given, const std::string& factor,
                std::vector<Tally>& all) {
  const auto figures = prepared_for(factor, given);
  auto groups = alternatives_along(figures, factor);
  judge_leads(groups);
  std::map<std::string, std::size_t> place_of;
  for (const auto& group : groups) {
    const CellFigure& first = *group.cells.front();
    const std::string environment = factor == "environment" ? "" : first.environment;
    const std::string sizes = size_class(first.size_bytes);
    const auto [found, is_new] = place_of.emplace(
        fmt::format("{}|{}|{}|{}", first.run_id, environment, first.collective, sizes), all.size());
    if (is_new)
      all.push_back(
          {{first.run_id, factor, or_null(environment), first.collective, sizes}, 0, 0, {}, {}});
    Tally& tally = all[found->second];
    ++tally.comparisons;
    if (first.median_us() > 0)
      tally.leads.push_back(group.cells[1]->median_us() / first.median_us());
    if (!group.lead_is_sure.value_or(false)) continue;
    ++tally.sure;
    ++tally.wins[axis_value(first, factor)];
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

Table findings_table(const std::vector<CellFigure>& figures, const QueryScope& /*scope*/) {
  Table table;
  std::vector<Tally> all;
  for (const char* factor :
       {"environment", "backend", "architecture", "algorithm", "group_knobs", "cell_knobs"})
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

}  // namespace

Query findings_query() {
  return {.title = "Findings",
          .row =
              "one factor in one environment, collective and size class: who surely wins how "
              "often, and by how much the first is ahead of the second; architectures at equal "
              "workers, of training the algorithm is the method",
          .columns = R"(
run_id
factor | text | the axis that varies
environment collective
sizes | text | class of sizes
comparisons | integer | lines of cells that differ in the factor alone
sure | integer | those with a sure winner
winner | text | the value that surely wins most often
winner_sure | integer | how often
typical_lead | real | median of second over first
finding | text | the same in words
)",
          .method = verdict_method(),
          .needs = "cells that differ in one factor alone",
          .of_figures = findings_table,
          .of_all_cells = true};
}

}  // namespace dynamiccl
