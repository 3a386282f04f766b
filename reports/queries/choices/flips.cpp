#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "core/statistics/verdict.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/flip_points.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"
#include "train/spec/training.hpp"

namespace dynamiccl {
namespace {

constexpr const char* kFlipsColumns = R"(
run_id
factor | text | what the two sides differ in
a | text | one side
b | text | the other
collective
along | text | the axis along which places change
lines | integer | lines of cells along that axis
finding | text | what they show
environment backend model batch
size_bytes | bytes, integer, exact, optional | payload of a call
workers
setting | text, optional | settings that hold
before | text, optional | the last point of the one side
faster_before | text, optional | the faster there
ratio_before | real, interval, optional | time of b over time of a there
after | text, optional | the first point of the other side
faster_after | text, optional | the faster there
ratio_after | real, interval, optional | time of b over time of a there
crossover_bytes | bytes, real, optional, interval | size at which both are equally fast, between the two points
)";

/// What is looked along for a change of places, all else fixed.
struct Along {
  std::string_view name;
  bool ordered;  ///< between neighbours; else each value against the first
  std::string (*value)(const FlipCell&);
  void (*forget)(FlipCell&);
};

constexpr std::array kAlong{
    Along{"size_bytes", true,
          [](const FlipCell& c) {
            return format_bytes(Bytes(static_cast<std::uint64_t>(c.figure.size_bytes)));
          },
          [](FlipCell& c) { c.figure.size_bytes = 0; }},
    Along{"workers", true, [](const FlipCell& c) { return std::to_string(c.figure.ranks); },
          [](FlipCell& c) { c.figure.ranks = 0; }},
    Along{"batch", true, [](const FlipCell& c) { return std::to_string(c.batch); },
          [](FlipCell& c) { c.batch = 0; }},
    Along{"model", true, [](const FlipCell& c) { return c.model; },
          [](FlipCell& c) { c.model.clear(); }},
    Along{"environment", false, [](const FlipCell& c) { return c.figure.environment; },
          [](FlipCell& c) { c.figure.environment.clear(); }},
    Along{"backend", false, [](const FlipCell& c) { return c.figure.backend; },
          [](FlipCell& c) { c.figure.backend.clear(); }}};

/// FLOP per sample and parameter: models in the order in which partition is said to gain on fusion.
double intensity_of(const std::string& model) {
  const auto known = find_named<TrainingModel>(model);
  return known ? facts_of(*known, TrainingSpec{}.sequence).intensity() : 0;
}

/// In the order of every axis; of a line, only one of them differs.
auto place_of(const FlipCell& cell) {
  return std::tuple(cell.figure.size_bytes, cell.figure.ranks, cell.batch, intensity_of(cell.model),
                    cell.model, environment_order(cell.figure.environment), cell.figure.backend);
}

using FlipLine = std::vector<const FlipPoint*>;

/// 1 = a is faster, -1 = b, 0 = cannot be said.
int winner(const FlipPoint& point, bool sure_only) {
  if (point.verdict == Verdict::slower) return 1;
  if (point.verdict == Verdict::faster) return -1;
  if (sure_only || std::fabs(std::log(point.ratio.value)) <= std::log1p(EquivalenceBand{}.relative))
    return 0;
  return point.ratio.value > 1 ? 1 : -1;
}

struct Flip {
  std::size_t before = 0;
  std::size_t after = 0;
};

std::vector<Flip> flips_in(const FlipLine& line, bool ordered, bool sure) {
  std::vector<Flip> flips;
  std::optional<std::size_t> last;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const int now = winner(*line[i], sure);
    if (now == 0) continue;
    const bool turned = last && winner(*line[*last], sure) != now;
    if (turned) flips.push_back({*last, i});
    // Environments and backends have no neighbours: each is compared with the first.
    if (!last || ordered) last = i;
  }
  return flips;
}

/// Lines along one axis of one pair.
struct Bundle {
  const FlipPoint* example = nullptr;
  std::vector<FlipLine> lines;
};

std::vector<Bundle> bundles_along(const std::vector<FlipPoint>& points, const Along& along) {
  std::map<std::string, std::pair<std::size_t, std::size_t>> line_of;
  std::map<std::string, std::size_t> bundle_of;
  std::vector<Bundle> bundles;
  for (const auto& point : points) {
    // Along the other axes `query crossover` and `best` tell of backends.
    const bool backends = point.factor == kBackendFactor;
    if (backends && along.name != "environment") continue;
    const auto pair = fmt::format("{}\n{}\n{}\n{}", point.factor, point.a.side, point.b,
                                  backends ? "" : point.a.figure.collective);
    const auto [bundle, is_new] = bundle_of.emplace(pair, bundles.size());
    if (is_new) bundles.push_back({&point, {}});
    auto& lines = bundles[bundle->second].lines;
    FlipCell fixed = point.a;
    along.forget(fixed);
    const auto [line, begins] =
        line_of.emplace(pair + "\n" + key_of(fixed), std::pair(bundle->second, lines.size()));
    if (begins) lines.emplace_back();
    lines[line->second.second].push_back(&point);
  }
  for (auto& bundle : bundles) {
    std::erase_if(bundle.lines, [](const FlipLine& line) { return line.size() < 2; });
    for (auto& line : bundle.lines)
      std::stable_sort(line.begin(), line.end(), [](const FlipPoint* x, const FlipPoint* y) {
        return place_of(x->a) < place_of(y->a);
      });
  }
  std::erase_if(bundles, [](const Bundle& bundle) { return bundle.lines.empty(); });
  return bundles;
}

/// Without a single interval nothing can be sure; then the ratios are all there is to tell.
bool judged(const FlipLine& line) {
  return std::any_of(line.begin(), line.end(),
                     [](const FlipPoint* point) { return point->ratio.interval.has_value(); });
}

/// What else is fixed, where it is not the ordinary.
std::string setting_of(const FlipCell& cell) {
  const auto& f = cell.figure;
  std::vector<std::string> parts;
  if (!f.architecture.empty()) parts.push_back(f.architecture);
  if (!f.algorithm.empty() && f.algorithm != "library") parts.push_back(f.algorithm);
  for (const auto& knobs : {f.group_knobs, f.cell_knobs})
    if (!knobs.empty() && knobs != "{}") parts.push_back(knobs);
  if (f.datatype != "float32") parts.push_back(f.datatype);
  if (f.in_place != 0) parts.emplace_back("in place");
  return join(parts, " ");
}

Value or_null_count(std::int64_t count) { return count == 0 ? Value{} : Value{count}; }

class FlipRows {
 public:
  FlipRows(Table& table, const Along& along) : table_(table), along_(along) {}

  void add(const Bundle& bundle) {
    bool any = false;
    for (const auto& line : bundle.lines) {
      const bool sure = judged(line);
      for (const auto& flip : flips_in(line, along_.ordered, sure)) {
        add_flip(bundle, line, flip, sure);
        any = true;
      }
    }
    if (!any) add_none(bundle);
  }

 private:
  [[nodiscard]] std::vector<Value> pair_of(const Bundle& bundle, const std::string& collective,
                                           const std::string& finding) const {
    const FlipPoint& example = *bundle.example;
    return {example.a.figure.run_id,
            example.factor,
            example.a.side,
            example.b,
            or_null(collective),
            std::string(along_.name == "size_bytes" ? "size" : along_.name),
            static_cast<std::int64_t>(bundle.lines.size()),
            finding};
  }

  void add_end(std::vector<Value>& row, const FlipPoint& point, bool sure) const {
    row.emplace_back(along_.value(point.a));
    row.emplace_back(winner(point, sure) > 0 ? point.a.side : point.b);
    row.emplace_back(point.ratio.value);
    add_bounds(row, point.ratio.interval);
  }

  void add_flip(const Bundle& bundle, const FlipLine& line, const Flip& flip, bool sure) {
    auto row = pair_of(bundle, line.front()->a.figure.collective,
                       sure ? "flips" : "flips, not sure: no interval");
    FlipCell fixed = line.front()->a;
    along_.forget(fixed);
    row.push_back(or_null(fixed.figure.environment));
    row.push_back(or_null(fixed.figure.backend));
    row.push_back(or_null(fixed.model));
    row.push_back(or_null_count(fixed.batch));
    row.push_back(or_null_count(fixed.figure.size_bytes));
    row.push_back(or_null_count(fixed.figure.ranks));
    row.push_back(or_null(setting_of(fixed)));
    add_end(row, *line[flip.before], sure);
    add_end(row, *line[flip.after], sure);
    if (along_.name == "size_bytes") {
      std::vector<std::pair<std::int64_t, double>> between;
      for (std::size_t i = flip.before; i <= flip.after; ++i)
        between.emplace_back(line[i]->a.figure.size_bytes, std::log(line[i]->ratio.value));
      row.emplace_back(equal_size(between));
      row.emplace_back(between.front().first);
      row.emplace_back(between.back().first);
    }
    row.resize(table_.columns.size());
    table_.rows.push_back(std::move(row));
  }

  void add_none(const Bundle& bundle) {
    std::set<std::string> winners;
    std::size_t decided = 0;
    std::size_t all = 0;
    for (const auto& line : bundle.lines) {
      const bool sure = judged(line);
      all += line.size();
      for (const FlipPoint* point : line) {
        const int faster = winner(*point, sure);
        if (faster == 0) continue;
        ++decided;
        winners.insert(faster > 0 ? point->a.side : point->b);
      }
    }
    const std::string who = join({winners.begin(), winners.end()}, " or ");
    const std::string finding =
        winners.empty()  ? fmt::format("nothing sure at {} points", all)
        : decided == all ? fmt::format("no flip: {} at all {} points", who, all)
                         : fmt::format("no flip: {} at {} of {} points, nothing sure at the others",
                                       who, decided, all);
    const FlipPoint& example = *bundle.example;
    auto row = pair_of(bundle, example.factor == kBackendFactor ? "" : example.a.figure.collective,
                       finding);
    row.resize(table_.columns.size());
    table_.rows.push_back(std::move(row));
  }

  Table& table_;
  const Along& along_;
};

Table flips_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                  const QueryScope& /*scope*/) {
  Table table = empty_table(kFlipsColumns);
  for (const std::int64_t run : runs) {
    const auto points = flip_points(load_figures(reader, {run}));
    for (const auto& along : kAlong) {
      FlipRows rows(table, along);
      for (const auto& bundle : bundles_along(points, along)) rows.add(bundle);
    }
  }
  return table;
}

}  // namespace

Query flips_query() {
  return {
      .title = "Changes of places",
      .row =
          "one pair (server and ring at equal workers, methods that merge gradients and that cut "
          "them, backends) and axis along which the faster becomes the slower, or that none does",
      .columns = kFlipsColumns,
      .method = verdict_method("equal workers: a server and N workers are N + 1 ranks, a ring of N "
                               "is N; ratio = time of b / time of a, so above 1 a is faster; "),
      .needs =
          "two values of a pair (backends, or server and ring at equal workers) on one line of an "
          "axis with more than one point",
      .of_runs = flips_table};
}

}  // namespace dynamiccl
