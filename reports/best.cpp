#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/statistics/verdict.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"
#include "reports/figure_queries.hpp"
#include "reports/table_view.hpp"

namespace dynamiccl {
namespace {

using Candidates = std::vector<const CellFigure*>;

/// Groups in the order of their first figure.
template <class Key>
std::vector<Candidates> group_by(const std::vector<CellFigure>& figures, Key key) {
  std::vector<Candidates> groups;
  std::map<std::string, std::size_t> place;
  for (const auto& figure : figures) {
    const auto [found, is_new] = place.emplace(key(figure), groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back(&figure);
  }
  return groups;
}

void fastest_first(Candidates& candidates) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const auto* a, const auto* b) { return a->median_us() < b->median_us(); });
}

/// The runner-up against the best, in each group of candidates; the rows of a table are judged
/// together.
class Leads {
 public:
  /// @param candidates the fastest first
  void add(const Candidates& candidates, std::size_t row) {
    if (candidates.size() < 2) return;
    runs_.push_back(candidates[0]->run_id);
    ratios_.push_back(lead_ratio(candidates));
    rows_.push_back(row);
  }
  /// Writes "yes" where the lead is beyond noise and beyond the band inside which times count as
  /// equal, else "no".
  void tell(Table& table, std::string_view column) const {
    const auto at = *column_index(table, column);
    const auto verdicts = judge_by_run(runs_, ratios_);
    for (std::size_t i = 0; i < rows_.size(); ++i)
      table.rows[rows_[i]][at] = std::string(verdicts[i] == Verdict::slower ? "yes" : "no");
  }

 private:
  std::vector<std::string> runs_;
  std::vector<Ratio> ratios_;
  std::vector<std::size_t> rows_;
};

std::string cadence_text(const Candidates& candidates) {
  const auto cadences = cadences_of(candidates);
  return join({cadences.begin(), cadences.end()}, ", ");
}

/// @param candidates the fastest first
std::vector<Value> best_row(const Candidates& candidates) {
  const CellFigure& best = *candidates.front();
  std::vector<Value> row{best.run_id,
                         best.environment,
                         or_null(join({best.regimes.begin(), best.regimes.end()}, ", ")),
                         best.collective,
                         best.size_bytes,
                         best.ranks,
                         best.datatype,
                         best.in_place,
                         static_cast<std::int64_t>(candidates.size()),
                         best.backend,
                         best.architecture,
                         best.algorithm,
                         or_null(knobs_of(best)),
                         static_cast<std::int64_t>(best.launches.size()),
                         best.median_us()};
  add_bounds(row, best.interval());
  const Value cadence = or_null(cadence_text(candidates));
  if (candidates.size() < 2) {
    row.resize(row.size() + 8);
    row.push_back(cadence);
    return row;
  }
  const CellFigure& second = *candidates[1];
  const CellFigure& worst = *candidates.back();
  const Ratio lead = lead_ratio(candidates);
  row.emplace_back(choice_of(second));
  row.emplace_back(second.median_us());
  row.emplace_back(lead.value);
  add_bounds(row, lead.interval);
  row.emplace_back();  // whether that is sure: Leads
  row.emplace_back(choice_of(worst));
  row.emplace_back(worst.median_us());
  row.push_back(cadence);
  return row;
}

/// Values of an axis among the figures, environments and numbers in their own order.
std::vector<std::string> axis_values(const std::vector<CellFigure>& figures,
                                     const std::string& axis) {
  std::vector<std::string> values;
  for (const auto& figure : figures) {
    const auto value = axis_value(figure, axis);
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  }
  std::sort(values.begin(), values.end(), [&](const std::string& a, const std::string& b) {
    if (axis == "environment") return environment_order(a) < environment_order(b);
    if (axis == "size_bytes" || axis == "ranks") return std::stoull(a) < std::stoull(b);
    return a < b;
  });
  return values;
}

std::string value_title(const std::string& axis, const std::string& value) {
  return axis == "size_bytes" ? format_bytes(Bytes(std::stoull(value))) : value;
}

}  // namespace

std::string knobs_of(const CellFigure& f) {
  std::string text;
  for (const auto& knobs : {f.group_knobs, f.cell_knobs}) {
    if (knobs != "{}" && !knobs.empty()) text += (text.empty() ? "" : " ") + knobs;
  }
  return text;
}

std::string choice_of(const CellFigure& f) {
  std::string text = f.backend + " " + f.architecture;
  if (f.algorithm != "library") text += " " + f.algorithm;
  if (const auto knobs = knobs_of(f); !knobs.empty()) text += " " + knobs;
  return text;
}

Table best_table(const std::vector<CellFigure>& figures, const QueryScope&) {
  Table table;
  table.columns = {"run_id",
                   "environment",
                   "regime",
                   "collective",
                   "size_bytes",
                   "ranks",
                   "datatype",
                   "in_place",
                   "candidates",
                   "best_backend",
                   "best_architecture",
                   "best_algorithm",
                   "best_knobs",
                   "launches",
                   "median_us",
                   "median_low_us",
                   "median_high_us",
                   "runner_up",
                   "runner_up_median_us",
                   "lead",
                   "lead_low",
                   "lead_high",
                   "lead_is_sure",
                   "worst",
                   "worst_median_us",
                   "cadence"};
  const auto key = [](const CellFigure& f) {
    return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}", f.run_id, f.environment, f.collective,
                       f.size_bytes, f.ranks, f.datatype, f.in_place);
  };
  Leads leads;
  for (auto& candidates : group_by(figures, key)) {
    fastest_first(candidates);
    leads.add(candidates, table.rows.size());
    table.rows.push_back(best_row(candidates));
  }
  leads.tell(table, "lead_is_sure");
  return table;
}

Table axis_table(const std::vector<CellFigure>& given, const QueryScope& scope) {
  const std::string& axis = scope.vary;
  const auto figures = axis == "backend" ? with_stated_memory(given) : given;
  axis_value(CellFigure{}, axis);
  const auto values = axis_values(figures, axis);
  // A larger message or more ranks are no choice, so nothing wins.
  const bool has_winner = axis != "size_bytes" && axis != "ranks";
  Table table;
  add_cell_columns(table);
  const auto at = *column_index(table, axis);
  table.columns.erase(table.columns.begin() + static_cast<std::ptrdiff_t>(at));
  table.columns.pop_back();  // the regime is not the same on both sides
  for (const auto& value : values) table.columns.push_back(value_title(axis, value) + "_us");
  if (has_winner)
    table.columns.insert(table.columns.end(), {"winner", "winner_is_sure", "cadence"});
  const auto groups = group_by(figures, [&](const CellFigure& f) { return key_without(f, axis); });
  Leads leads;
  for (auto candidates : groups) {
    if (candidates.size() < 2) continue;
    auto row = cell_values(*candidates.front());
    row.erase(row.begin() + static_cast<std::ptrdiff_t>(at));
    row.pop_back();
    for (const auto& value : values) {
      const auto found = std::find_if(candidates.begin(), candidates.end(),
                                      [&](const auto* f) { return axis_value(*f, axis) == value; });
      row.push_back(
          or_null(found == candidates.end() ? std::nullopt : std::optional((*found)->median_us())));
    }
    if (has_winner) {
      fastest_first(candidates);
      row.emplace_back(axis_value(*candidates[0], axis));
      row.emplace_back();  // whether that is sure: Leads
      row.push_back(or_null(cadence_text(candidates)));
      leads.add(candidates, table.rows.size());
    }
    table.rows.push_back(std::move(row));
  }
  if (has_winner) leads.tell(table, "winner_is_sure");
  return table;
}

}  // namespace dynamiccl
