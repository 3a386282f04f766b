#include "reports/model/alternatives.hpp"

#include <algorithm>
#include <map>

#include "core/statistics/verdict.hpp"
#include "core/vocabulary/text.hpp"
#include "reports/model/exchanges.hpp"
#include "reports/model/table_view.hpp"

namespace dynamiccl {

std::vector<Alternatives> alternatives_by(
    const std::vector<CellFigure>& figures,
    const std::function<std::string(const CellFigure&)>& key) {
  std::vector<Alternatives> groups;
  std::map<std::string, std::size_t> place;
  for (const auto& figure : figures) {
    std::string own = key(figure);
    if (own.empty()) continue;
    const auto [found, is_new] = place.emplace(std::move(own), groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].cells.push_back(&figure);
  }
  for (auto& group : groups) {
    group.listed = group.cells;
    std::stable_sort(group.cells.begin(), group.cells.end(),
                     [](const auto* a, const auto* b) { return a->median_us() < b->median_us(); });
  }
  return groups;
}

std::vector<Alternatives> alternatives_along(const std::vector<CellFigure>& figures,
                                             const std::string& axis) {
  // Ways to train are no alternatives by their steps where one of them loses something.
  const bool chooses_way = axis == "algorithm" || axis == "cell_knobs" || axis == "architecture";
  auto groups = alternatives_by(figures, [&](const CellFigure& f) {
    return chooses_way && !compares_by_time(f) ? std::string() : key_without(f, axis);
  });
  std::erase_if(groups, [](const Alternatives& group) { return group.cells.size() < 2; });
  return groups;
}

void judge_leads(std::vector<Alternatives>& groups) {
  std::vector<std::string> runs;
  std::vector<Ratio> ratios;
  std::vector<Alternatives*> judged;
  for (auto& group : groups) {
    if (group.cells.size() < 2) continue;
    runs.push_back(group.cells.front()->run_id);
    ratios.push_back(lead_ratio(group.cells));
    judged.push_back(&group);
  }
  const auto verdicts = judge_by_run(runs, ratios);
  for (std::size_t i = 0; i < judged.size(); ++i)
    judged[i]->lead_is_sure = verdicts[i] == Verdict::slower;
}

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

bool is_choice(const std::string& axis) { return axis != "size_bytes" && axis != "ranks"; }

std::string cadence_text(const Alternatives& group) {
  const auto cadences = cadences_of(group.cells);
  return join({cadences.begin(), cadences.end()}, ", ");
}

Value sure_text(const std::optional<bool>& sure) {
  return sure ? Value(std::string(*sure ? "yes" : "no")) : Value{};
}

}  // namespace dynamiccl
