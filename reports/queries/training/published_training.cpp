#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "core/statistics/statistics.hpp"
#include "core/vocabulary/text.hpp"
#include "reports/model/c2c.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/published.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"
#include "train/spec/training.hpp"

namespace dynamiccl {
namespace {

constexpr const char* kPublishedTrainingColumns = R"(
run_id model method workers batch environment backend
link | text | the links here
launches
speedup
published_100gb_ib_rdma | real | published over 100 Gb/s InfiniBand with RDMA, the middle of a range
published_100gbe_tcp | real | published over 100 Gb/s Ethernet with TCP, the middle of a range
published_10gbe_tcp | real | published over 10 Gb/s Ethernet with TCP, the middle of a range
deviation | real | speed-up here over the published one of the fastest link that has one
note
)";

constexpr std::array kPublishedLinks{"100Gb-IB-RDMA", "100GbE-TCP", "10GbE-TCP"};
constexpr const char* kBestOfAll = "best of all";  // the seed reports it without naming the method

/// Model, method and workers: one row of the published table over its links.
using SpeedupPlace = std::tuple<std::string, std::string, std::int64_t>;
using SpeedupsByPlace = std::map<SpeedupPlace, std::vector<const PublishedSpeedup*>>;

SpeedupsByPlace published_by_place() {
  SpeedupsByPlace published;
  for (const auto& one : training_studies().speedups)
    published[{one.model, one.method.empty() ? kBestOfAll : one.method, one.workers}].push_back(
        &one);
  return published;
}

/// Whether the place is where the winner of models of low intensity is published not to win.
bool is_exception(const SpeedupPlace& place) {
  const auto& [model, method, workers] = place;
  const PublishedException& exception = training_studies().low_intensity;
  if (model != exception.model || workers != exception.workers) return false;
  const auto known = find_named<TrainingMethod>(method);
  return !known || method_row(*known).published == PublishedStanding::best_below_intensity;
}

/// @param speedup here, nullopt where nothing was measured
void add_published_speedups(std::vector<Value>& row, const SpeedupsByPlace& published,
                            const SpeedupPlace& place, std::optional<double> speedup,
                            std::string note) {
  const auto found = published.find(place);
  const auto remark = [&](const std::string& text) { note += (note.empty() ? "" : "; ") + text; };
  std::optional<double> deviation;
  for (const char* link : kPublishedLinks) {
    const PublishedSpeedup* one = nullptr;
    if (found != published.end())
      for (const auto* candidate : found->second)
        if (candidate->link == link) one = candidate;
    const auto middle = one != nullptr ? std::optional((one->low + one->high) / 2) : std::nullopt;
    row.push_back(or_null(middle));
    if (middle && speedup && !deviation) deviation = *speedup / *middle;
    if (one != nullptr && one->low != one->high)
      remark(fmt::format("{}: one range for all methods, {} to {}", link, one->low, one->high));
    if (one != nullptr && one->doubtful)
      remark(fmt::format("{}: equals the slower link's row, probably measured there", link));
  }
  if (is_exception(place))
    remark(fmt::format("published exception, {}: merging is not the best there",
                       training_studies().low_intensity.text));
  row.push_back(or_null(deviation));
  row.push_back(or_null(note));
}

std::vector<Value> measured_speedup_row(const C2cCell& c, const std::string& method) {
  std::vector<Value> row{c.figure.run_id,
                         c.cell.model,
                         method,
                         c.cell.workers,
                         c.cell.batch,
                         c.figure.environment,
                         c.figure.backend,
                         or_null(c.figure.launches.empty() ? "" : c.figure.launches.back().regime),
                         static_cast<std::int64_t>(c.speedups.size()),
                         median(c.speedups)};
  add_bounds(row, launch_interval(c.speedups));
  return row;
}

double typical_speedup(const C2cCell& cell) { return median(cell.speedups); }

/// The cell of the highest speed-up of each environment, backend, model, method and workers: the
/// published ones have one setting per method. The best over methods stands under its own name.
std::map<std::pair<SpeedupPlace, std::string>, const C2cCell*> best_of_each(
    const std::vector<C2cCell>& cells) {
  std::map<std::pair<SpeedupPlace, std::string>, const C2cCell*> best;
  for (const auto& cell : cells) {
    if (cell.speedups.empty()) continue;
    const std::string where = cell.figure.environment + "|" + cell.figure.backend + "|" +
                              cell.figure.group_knobs + "|" + std::to_string(cell.cell.batch);
    for (const std::string& method : {cell.figure.algorithm, std::string(kBestOfAll)}) {
      const C2cCell*& known = best[{{cell.cell.model, method, cell.cell.workers}, where}];
      if (known == nullptr || typical_speedup(cell) > typical_speedup(*known)) known = &cell;
    }
  }
  return best;
}

Table published_training_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                               const QueryScope& /*scope*/) {
  Table table = empty_table(kPublishedTrainingColumns);
  const auto published = published_by_place();
  const auto is_published_model = [&](const std::string& model) {
    const auto& models = training_studies().models;
    return std::any_of(models.begin(), models.end(),
                       [&](const auto& known) { return known.model == model; });
  };
  for (const std::int64_t run : runs) {
    const Table named = reader.query("SELECT uuid FROM run WHERE id = ?1", {run});
    const auto cells = c2c_cells(reader, run, load_figures(reader, {run}));
    if (cells.empty()) continue;
    auto missing = published;
    for (const auto& [key, cell] : best_of_each(cells)) {
      const auto& [place, where] = key;
      if (!is_published_model(cell->cell.model)) continue;
      auto row = measured_speedup_row(*cell, std::get<1>(place));
      add_published_speedups(
          row, published, place, typical_speedup(*cell),
          std::get<1>(place) == kBestOfAll ? "here: " + cell->figure.algorithm : "");
      table.rows.push_back(std::move(row));
      missing.erase(place);
    }
    for (const auto& [place, links] : missing) {
      std::vector<Value> row(table.columns.size() - kPublishedLinks.size() - 2);
      row[0] = TableView(named).text(0, "uuid");
      row[1] = std::get<0>(place);
      row[2] = std::get<1>(place);
      row[3] = std::get<2>(place);
      add_published_speedups(row, published, place, std::nullopt, "not measured");
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

}  // namespace

Query published_training_query() {
  return {.title = "Published speed-ups",
          .row =
              "one model, method and number of workers: throughput over one worker here, and "
              "what the survey published of its three links",
          .columns = kPublishedTrainingColumns,
          .of_runs = published_training_table};
}

}  // namespace dynamiccl
