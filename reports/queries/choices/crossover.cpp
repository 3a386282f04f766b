#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "core/statistics/verdict.hpp"
#include "core/vocabulary/text.hpp"
#include "reports/model/exchanges.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/flip_points.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

/// One size measured under both values of the axis.
struct Point {
  std::int64_t size_bytes = 0;
  Ratio ratio;           ///< of B's time to A's
  double log_ratio = 0;  ///< its logarithm
  Verdict verdict = Verdict::unclear;
  std::set<std::string> cadences;  ///< of both
};

/// A size at which the faster of two becomes the slower.
struct Crossing {
  std::size_t before = 0;  ///< the last point on the one side that counts
  std::size_t after = 0;   ///< the first on the other
  bool sure = false;       ///< both are beyond noise and the band
};

/// Which of the two is faster here: 1 = A, -1 = B, 0 = cannot be said.
int winner(const Point& point, bool sure_only) {
  if (sure_only) {
    if (point.verdict == Verdict::slower) return 1;
    return point.verdict == Verdict::faster ? -1 : 0;
  }
  if (std::fabs(point.log_ratio) <= std::log1p(EquivalenceBand{}.relative)) return 0;
  return point.log_ratio > 0 ? 1 : -1;
}

std::vector<Crossing> crossings(const std::vector<Point>& points, bool sure_only) {
  std::vector<Crossing> found;
  std::optional<std::size_t> last;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const int now = winner(points[i], sure_only);
    if (now == 0) continue;
    if (last && winner(points[*last], sure_only) != now) found.push_back({*last, i, sure_only});
    last = i;
  }
  return found;
}

double crossing_size(const std::vector<Point>& points, const Crossing& crossing) {
  std::vector<std::pair<std::int64_t, double>> between;
  for (std::size_t i = crossing.before; i <= crossing.after; ++i)
    between.emplace_back(points[i].size_bytes, points[i].log_ratio);
  return equal_size(between);
}

/// Everything but size and the axis that varies.
std::string key_of(const CellFigure& figure, const std::string& axis) {
  std::string key = figure.run_id;
  for (const auto& name : axis_names()) {
    if (name != axis && name != "size_bytes") key += "\n" + axis_value(figure, name);
  }
  return key;
}

using BySize = std::map<std::int64_t, const CellFigure*>;

std::vector<Point> points_of(const BySize& a, const BySize& b) {
  std::vector<Point> points;
  for (const auto& [size, figure] : a) {
    const auto partner = b.find(size);
    if (partner == b.end()) continue;
    const Ratio ratio = time_ratio(*partner->second, *figure);
    points.push_back({size, ratio, std::log(ratio.value), Verdict::unclear,
                      cadences_of({figure, partner->second})});
  }
  return points;
}

/// Two values of the axis, all else equal.
struct Pair {
  const CellFigure* example = nullptr;
  std::string a;
  std::string b;
  std::vector<Point> points;
};

/// All points of all pairs are one table: each alone at 95 % would give false crossings by chance.
void judge_points(std::vector<Pair>& pairs) {
  std::vector<std::string> runs;
  std::vector<Ratio> ratios;
  for (const auto& pair : pairs) {
    for (const auto& point : pair.points) {
      runs.push_back(pair.example->run_id);
      ratios.push_back(point.ratio);
    }
  }
  const auto verdicts = judge_by_run(runs, ratios);
  auto verdict = verdicts.begin();
  for (auto& pair : pairs) {
    for (auto& point : pair.points) point.verdict = *verdict++;
  }
}

/// That one side wins at all sizes is sure where each size is: an unclear one may be the other's.
bool all_decided(const std::vector<Point>& points) {
  return std::none_of(points.begin(), points.end(),
                      [](const Point& p) { return p.verdict == Verdict::unclear; });
}

/// Sizes may be timed in different ways, as long as both sides of each are timed alike.
std::string cadence_text(const std::vector<Point>& points) {
  std::set<std::string> texts;
  for (const auto& point : points) {
    if (!point.cadences.empty())
      texts.insert(join({point.cadences.begin(), point.cadences.end()}, " against "));
  }
  return join({texts.begin(), texts.end()}, ", ");
}

class CrossoverRows {
 public:
  CrossoverRows(Table& table, std::string axis) : table_(table), axis_(std::move(axis)) {}

  void add_pair(const Pair& pair) {
    const auto& [example, a, b, points] = pair;
    auto found = crossings(points, true);
    // Without intervals nothing is sure; then the ratios themselves are all there is to tell.
    const bool by_verdict = std::any_of(points.begin(), points.end(),
                                        [](const Point& p) { return winner(p, true) != 0; });
    if (!by_verdict) found = crossings(points, false);
    if (found.empty()) add_row(*example, a, b, points, std::nullopt, by_verdict);
    for (const auto& crossing : found) add_row(*example, a, b, points, crossing, crossing.sure);
  }

 private:
  void add_row(const CellFigure& example, const std::string& a, const std::string& b,
               const std::vector<Point>& points, const std::optional<Crossing>& crossing,
               bool by_verdict) {
    std::vector<Value> row{example.run_id};
    for (const auto& axis : axis_names()) {
      if (axis == axis_ || axis == "size_bytes") continue;
      row.push_back(axis == "ranks" ? Value{example.ranks} : Value{axis_value(example, axis)});
    }
    row.insert(row.end(), {a, b, static_cast<std::int64_t>(points.size())});
    const auto name = [&](std::size_t at) -> Value {
      const int who = winner(points[at], by_verdict);
      return who == 0 ? Value{} : Value{who > 0 ? a : b};
    };
    if (crossing) {
      row.push_back(name(crossing->before));
      row.push_back(name(crossing->after));
      row.emplace_back(crossing_size(points, *crossing));
      row.emplace_back(points[crossing->before].size_bytes);
      row.emplace_back(points[crossing->after].size_bytes);
    } else {
      // One of them wins wherever there is a winner.
      const auto decided = std::find_if(points.begin(), points.end(),
                                        [&](const Point& p) { return winner(p, by_verdict) != 0; });
      const Value all = decided == points.end()
                            ? Value{}
                            : name(static_cast<std::size_t>(decided - points.begin()));
      row.insert(row.end(), {all, all, Value{}, Value{}, Value{}});
    }
    row.emplace_back(std::exp(points.front().log_ratio));
    row.emplace_back(std::exp(points.back().log_ratio));
    const bool sure = crossing ? crossing->sure : by_verdict && all_decided(points);
    row.emplace_back(std::string(sure ? "yes" : "no"));
    row.push_back(or_null(cadence_text(points)));
    table_.rows.push_back(std::move(row));
  }

  Table& table_;
  std::string axis_;
};

Table crossover_table(const std::vector<CellFigure>& given, const QueryScope& scope) {
  const std::string& axis = scope.vary;
  const auto figures = axis == "backend"        ? with_stated_memory(given)
                       : axis == "architecture" ? as_exchanges(given)
                                                : given;
  axis_value(CellFigure{}, axis);  // refuses an unknown one
  Table table;
  table.columns = {"run_id"};
  for (const auto& name : axis_names()) {
    if (name == axis || name == "size_bytes") continue;
    table.columns.push_back(axis == "architecture" && name == "ranks" ? "workers" : name);
  }
  for (const char* name :
       {"a", "b", "sizes", "faster_below", "faster_above", "crossover_bytes", "crossover_low_bytes",
        "crossover_high_bytes", "ratio_smallest", "ratio_largest", "is_sure", "cadence"}) {
    table.columns.emplace_back(name);
  }
  if (axis == "size_bytes") return table;
  std::vector<std::string> order;
  std::map<std::string, std::vector<std::pair<std::string, BySize>>> groups;
  for (const auto& figure : figures) {
    const auto key = key_of(figure, axis);
    auto& values = groups[key];
    if (values.empty()) order.push_back(key);
    const auto value = axis_value(figure, axis);
    auto place = std::find_if(values.begin(), values.end(),
                              [&](const auto& entry) { return entry.first == value; });
    if (place == values.end()) place = values.insert(values.end(), {value, BySize{}});
    place->second[figure.size_bytes] = &figure;
  }
  std::vector<Pair> pairs;
  for (const auto& key : order) {
    const auto& values = groups.at(key);
    for (std::size_t i = 0; i < values.size(); ++i) {
      for (std::size_t j = i + 1; j < values.size(); ++j) {
        Pair pair{values[i].second.begin()->second, values[i].first, values[j].first,
                  points_of(values[i].second, values[j].second)};
        if (pair.points.size() > 1) pairs.push_back(std::move(pair));
      }
    }
  }
  judge_points(pairs);
  CrossoverRows rows(table, axis);
  for (const auto& pair : pairs) rows.add_pair(pair);
  return table;
}

}  // namespace

Query crossover_query() {
  return {.title = "Crossover sizes",
          .row =
              "two environments (--vary: or backends, algorithms) of one operation and the size at "
              "which the faster becomes the slower",
          .columns = R"(
run_id environment backend architecture collective ranks workers datatype algorithm in_place group_knobs cell_knobs
a | text | one value of the axis --vary
b | text | the other
sizes | integer, if_room | sizes that both were measured at
faster_below | text | the faster one below the crossover
faster_above | text | the faster one above it
crossover_bytes | bytes, real, optional, interval | size at which both are equally fast; low and high: nearest measured sizes at which each is surely faster
ratio_smallest | real, if_room | time of b over time of a at the smallest size
ratio_largest | real, if_room | the same at the largest
is_sure | text | whether both sides of it, or all sizes where there is none, are sure
cadence
)",
          .method = verdict_method(),
          .takes_vary = true,
          .needs = "more than one size, and two values of --vary in each",
          .of_figures = crossover_table};
}

}  // namespace dynamiccl
