#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "core/statistics/statistics.hpp"
#include "reports/model/c2c.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/published.hpp"
#include "reports/model/run_facts.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

constexpr const char* kC2cContrastsColumns = R"(
run_id
contrast | text | what the two models differ in
source | text | published or here
environment backend method workers
base_model | text | the model of the lower C2C as published
base_batch | integer | its batch
other_model | text | the other
other_batch | integer | its batch
c2c_ratio | real | the other's C2C over the base's
base_speedup | real | speed-up of the base
other_speedup | real | of the other
speedup_ratio | real, ends:ratio_low:ratio_high | the other's over the base's
check | text | held, contradicted, unclear or not measured
)";

/// A pair of models that differ in what C2C says scaling depends on.
struct Contrast {
  const char* name;
  const char* base;   ///< of the lower published C2C
  const char* other;  ///< of the higher
};
constexpr std::array kContrasts{Contrast{"intensity", "resnet50", "bert-base"},
                                Contrast{"batch", "bert-base", "bert-large"}};

/// Does the speed-up fall where C2C rises? @param c2c_ratio other model's C2C over the base's
std::string contrast_check(double c2c_ratio, const Ratio& speedup_ratio) {
  const double low = speedup_ratio.interval ? speedup_ratio.interval->low : 0;
  const double high = speedup_ratio.interval ? speedup_ratio.interval->high : 0;
  if (!speedup_ratio.interval || c2c_ratio == 1) return "unclear";
  if (c2c_ratio > 1 ? high < 1 : low > 1) return "held";
  if (c2c_ratio > 1 ? low > 1 : high < 1) return "contradicted";
  return "unclear";
}

void add_published_contrast(Table& table, const std::string& run_id, const Contrast& contrast) {
  const TrainingStudies& studies = training_studies();
  const auto model = [&](const char* name) {
    return *std::find_if(studies.models.begin(), studies.models.end(),
                         [&](const auto& m) { return m.model == name; });
  };
  const PublishedModel base = model(contrast.base);
  const PublishedModel other = model(contrast.other);
  // f(N) is the same on both sides.
  const double c2c_ratio = base.batch * base.intensity / (other.batch * other.intensity);
  for (const auto& one : studies.speedups) {
    if (one.model != contrast.base || one.doubtful || one.low != one.high) continue;
    const auto pair =
        std::find_if(studies.speedups.begin(), studies.speedups.end(), [&](const auto& speedup) {
          return speedup.model == contrast.other && speedup.link == one.link &&
                 speedup.method == one.method && speedup.workers == one.workers &&
                 !speedup.doubtful && speedup.low == speedup.high;
        });
    if (pair == studies.speedups.end()) continue;
    table.rows.push_back(
        {run_id, std::string(contrast.name), std::string("published"), one.link, Value{},
         or_null(one.method), static_cast<std::int64_t>(one.workers), base.model,
         static_cast<std::int64_t>(base.batch), other.model, static_cast<std::int64_t>(other.batch),
         c2c_ratio, one.low, pair->low, pair->low / one.low, Value{}, Value{},
         std::string((pair->low < one.low) == (c2c_ratio > 1) ? "held" : "contradicted")});
  }
}

/// The fastest cell of each method and model in one place.
using FastestByPlace = std::map<
    std::tuple<std::string, std::string, std::string, std::int64_t, std::string, std::string>,
    const C2cCell*>;

FastestByPlace fastest_by_place(const std::vector<C2cCell>& cells) {
  FastestByPlace fastest;
  for (const auto& cell : cells) {
    const C2cCell*& known =
        fastest[{cell.figure.environment, cell.figure.backend, cell.figure.group_knobs,
                 cell.cell.workers, cell.figure.algorithm, cell.cell.model}];
    if (known == nullptr || cell.figure.median_us() < known->figure.median_us()) known = &cell;
  }
  return fastest;
}

/// @returns whether the run has both models somewhere
bool add_measured_contrast(Table& table, const std::string& run_id, const Contrast& contrast,
                           const FastestByPlace& fastest) {
  bool any = false;
  for (const auto& [place, base] : fastest) {
    if (base->cell.model != contrast.base) continue;
    auto wanted = place;
    std::get<5>(wanted) = contrast.other;
    const auto found = fastest.find(wanted);
    if (found == fastest.end()) continue;
    any = true;
    const C2cCell& other = *found->second;
    const double c2c_ratio = other.c2c_predicted / base->c2c_predicted;
    const Ratio ratio = ratio_unpaired(other.speedups, base->speedups);
    std::vector<Value> row{run_id,
                           std::string(contrast.name),
                           std::string("here"),
                           base->figure.environment,
                           base->figure.backend,
                           base->figure.algorithm,
                           base->cell.workers,
                           base->cell.model,
                           base->cell.batch,
                           other.cell.model,
                           other.cell.batch,
                           c2c_ratio,
                           median(base->speedups),
                           median(other.speedups),
                           ratio.value};
    add_bounds(row, ratio.interval);
    row.emplace_back(contrast_check(c2c_ratio, ratio));
    table.rows.push_back(std::move(row));
  }
  return any;
}

Table c2c_contrasts_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                          const QueryScope& /*scope*/) {
  Table table = empty_table(kC2cContrastsColumns);
  for (const std::int64_t run : runs) {
    const std::string run_id = run_uuid_of(reader, run);
    const auto cells = c2c_cells(reader, run, load_figures(reader, {run}));
    const auto fastest = fastest_by_place(cells);
    for (const auto& contrast : kContrasts) {
      if (!add_measured_contrast(table, run_id, contrast, fastest)) {
        std::vector<Value> row(table.columns.size());
        row[0] = run_id;
        row[1] = std::string(contrast.name);
        row[2] = std::string("here");
        row[7] = std::string(contrast.base);
        row[9] = std::string(contrast.other);
        row.back() = std::string("not measured");
        table.rows.push_back(std::move(row));
      }
      add_published_contrast(table, run_id, contrast);
    }
  }
  return table;
}

}  // namespace

Query c2c_contrasts_query() {
  return {.title = "C2C against two contrasts",
          .row =
              "one pair of models that differ in intensity or batch: held where the one of the "
              "higher C2C surely (95 % interval) has the lower speed-up, published and here",
          .columns = kC2cContrastsColumns,
          .of_runs = c2c_contrasts_table};
}

}  // namespace dynamiccl
