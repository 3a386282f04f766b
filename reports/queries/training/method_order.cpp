#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/vocabulary/text.hpp"
#include "profiles/published/training_studies.hpp"
#include "reports/model/exchanges.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/published.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

using Models = PublishedClaim::Models;

/// What was trained alike by methods of the survey: of each the setting with the shortest step, as
/// the survey has one of each.
struct MethodsOfOne {
  TrainedCell cell;
  std::map<std::string, const CellFigure*> methods;
};

std::set<std::string> surveyed_methods() {
  std::set<std::string> names;
  for (const auto& one : training_studies().speedups)
    if (!one.method.empty()) names.insert(one.method);
  return names;
}

/// Ranks and architecture are left out: servers are ranks, and it is workers that are compared.
std::vector<MethodsOfOne> trained_alike(const std::vector<CellFigure>& figures) {
  const auto surveyed = surveyed_methods();
  std::map<std::string, std::size_t> places;
  std::vector<MethodsOfOne> found;
  for (const auto& figure : figures) {
    if (!trained_as_one(figure) || !surveyed.contains(figure.algorithm)) continue;
    const TrainedCell cell = trained_cell(figure);
    if (cell.batch == 0 || cell.workers == 0 || figure.launches.empty()) continue;
    const auto of = [&](const char* name) { return cell.settings.value(name, std::string()); };
    const std::string place =
        join({figure.run_id, figure.environment, figure.backend, figure.group_knobs, cell.model,
              std::to_string(cell.batch), std::to_string(cell.workers), of("sequence"), of("data"),
              of("precision")},
             "|");
    const auto [at, is_new] = places.emplace(place, found.size());
    if (is_new) found.push_back({cell, {}});
    const CellFigure*& known = found[at->second].methods[figure.algorithm];
    if (known == nullptr || figure.median_us() < known->median_us()) known = &figure;
  }
  return found;
}

/// Of the survey's models alone it says which compute much per parameter and which little.
bool is_said_of(const PublishedClaim& claim, const TrainedCell& cell) {
  if (claim.models == Models::all) return true;
  const auto& models = training_studies().models;
  const auto [low, high] =
      std::minmax_element(models.begin(), models.end(),
                          [](const auto& a, const auto& b) { return a.intensity < b.intensity; });
  const auto own = std::find_if(models.begin(), models.end(),
                                [&](const auto& one) { return one.model == cell.model; });
  if (own == models.end()) return false;
  const bool computes_much = own->intensity > std::sqrt(low->intensity * high->intensity);
  return computes_much == (claim.models == Models::high_intensity);
}

bool is_excepted(const PublishedClaim& claim, const TrainedCell& cell) {
  const PublishedException& exception = training_studies().low_intensity;
  return claim.models == Models::low_intensity && cell.model == exception.model &&
         cell.workers == exception.workers;
}

/// Pairs of a claim in the rows that they make.
class OrderRows {
 public:
  void add(const PublishedClaim& claim, const MethodsOfOne& one) {
    for (const auto& [faster, of_faster] : one.methods)
      for (const auto& [slower, of_slower] : one.methods)
        if (faster != slower && fits(claim.faster, faster) && fits(claim.slower, slower))
          add_pair(claim, one, *of_faster, *of_slower);
  }

  /// AGREES: the published slower one is surely slower.
  Table finish(Table table) {
    const auto verdicts = judge_by_run(runs_, ratios_);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      rows_[i].emplace_back(std::string(verdicts[i] == Verdict::slower   ? "AGREES"
                                        : verdicts[i] == Verdict::faster ? "DIFFERS"
                                                                         : name_of(verdicts[i])));
      rows_[i].push_back(or_null(notes_[i]));
      table.rows.push_back(std::move(rows_[i]));
    }
    return table;
  }

 private:
  static bool fits(const std::string& claimed, const std::string& method) {
    return claimed.empty() || claimed == method;
  }

  void add_pair(const PublishedClaim& claim, const MethodsOfOne& one, const CellFigure& faster,
                const CellFigure& slower) {
    const Ratio ratio = time_ratio(slower, faster);
    std::vector<Value> row{faster.run_id,      one.cell.model,     one.cell.batch,
                           one.cell.workers,   faster.environment, faster.backend,
                           claim.text,         faster.algorithm,   slower.algorithm,
                           faster.median_us(), slower.median_us(), ratio.value};
    add_bounds(row, ratio.interval);
    rows_.push_back(std::move(row));
    runs_.push_back(faster.run_id);
    ratios_.push_back(ratio);
    notes_.push_back(is_excepted(claim, one.cell)
                         ? "published exception: " + training_studies().low_intensity.text
                         : "");
  }

  std::vector<std::vector<Value>> rows_;
  std::vector<std::string> runs_;
  std::vector<Ratio> ratios_;
  std::vector<std::string> notes_;
};

Table method_order_table(const std::vector<CellFigure>& figures, const QueryScope& /*scope*/) {
  OrderRows rows;
  for (const MethodsOfOne& one : trained_alike(figures))
    for (const PublishedClaim& claim : training_studies().claims)
      if (is_said_of(claim, one.cell)) rows.add(claim, one);
  return rows.finish({});
}

}  // namespace

Query method_order_query() {
  return {.title = "Published order of methods",
          .row =
              "two training methods of which the survey says that one is faster, measured with "
              "equal model, batch and workers: does the order hold here? What it says of models "
              "of low and high intensity is asked of its own models alone",
          .columns = R"(
run_id model batch workers environment backend
claim | text | what the survey says
faster | text | the method that it has before the other
slower | text | the other
faster_us | us, real | a step of the first
slower_us | us, real | a step of the other
ratio | real, interval | the other's step over the first's
order | text | AGREES, DIFFERS (both sure), SAME or UNCLEAR
note
)",
          .method = verdict_method(),
          .of_figures = method_order_table,
          .of_all_cells = true};
}

}  // namespace dynamiccl
