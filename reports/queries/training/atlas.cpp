#include <algorithm>
#include <map>
#include <tuple>

#include "core/statistics/verdict.hpp"
#include "reports/model/exchanges.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

struct Trained {
  CellFigure figure;
  TrainedCell cell;
  double intensity = 0;
  double speedup = 0;  ///< median over launches
};

std::vector<Trained> load(const Reader& reader, std::int64_t run) {
  const Table table = reader.query(
      "SELECT m.*, t.intensity AS intensity, t.speedup AS speedup "
      "FROM v_training t JOIN v_measurement m ON m.measurement_row = t.measurement_row "
      "WHERE t.run_row = ?1 AND t.counts",
      {run});
  const TableView rows(table);
  std::map<std::string, std::vector<double>> speedups;
  std::map<std::string, std::size_t> row_of;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto key = key_without(figure_cell(rows, i), "");
    row_of[key] = i;
    if (const auto speedup = rows.real(i, "speedup")) speedups[key].push_back(*speedup);
  }
  std::vector<Trained> trained;
  for (auto& figure : load_figures(reader, {run})) {
    const auto key = key_without(figure, "");
    const auto row = row_of.find(key);
    if (figure.collective != "training" || row == row_of.end()) continue;
    if (!trained_as_one(figure)) continue;  // those are ranked by time to a target
    Trained one;
    one.cell = trained_cell(figure);
    one.intensity = rows.real(row->second, "intensity").value_or(0);
    one.speedup = median(speedups[key]);
    one.figure = std::move(figure);
    trained.push_back(std::move(one));
  }
  return trained;
}

/// A regime of the atlas, in its order: environment, backend, intensity, model, batch, workers.
auto regime_of(const Trained& t) {
  return std::tuple(environment_order(t.figure.environment), t.figure.backend, t.intensity,
                    t.cell.model, t.cell.batch, t.cell.workers);
}

std::string method_of(const Trained& t) {
  const auto& settings = t.cell.settings;
  return t.figure.algorithm + (settings.empty() ? "" : " " + settings.dump());
}

Table atlas_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                  const QueryScope& /*scope*/) {
  Table table;
  std::vector<std::string> judged_runs;
  std::vector<Ratio> leads;
  for (const std::int64_t run : runs) {
    std::map<decltype(regime_of(Trained{})), std::vector<Trained>> regimes;
    for (auto& one : load(reader, run)) {
      auto regime = regime_of(one);
      regimes[std::move(regime)].push_back(std::move(one));
    }
    for (auto& [regime, methods] : regimes) {
      std::stable_sort(methods.begin(), methods.end(), [](const auto& a, const auto& b) {
        return a.figure.median_us() < b.figure.median_us();
      });
      const Trained& best = methods.front();
      const CellFigure& f = best.figure;
      const bool alone = methods.size() < 2;
      std::vector<const CellFigure*> candidates;
      for (const auto& method : methods) candidates.push_back(&method.figure);
      // One method against nothing has no lead: a ratio without an interval is never sure.
      const Ratio lead = lead_ratio(candidates);
      std::vector<Value> row{f.run_id,
                             f.environment,
                             f.backend,
                             best.cell.model,
                             best.intensity,
                             best.cell.batch,
                             best.cell.workers,
                             static_cast<std::int64_t>(methods.size()),
                             static_cast<std::int64_t>(f.launches.size()),
                             method_of(best),
                             f.median_us()};
      add_bounds(row, f.interval());
      row.emplace_back(best.speedup);
      row.push_back(or_null(alone ? "" : method_of(methods[1])));
      row.push_back(or_null(alone ? std::nullopt : std::optional(lead.value)));
      add_bounds(row, lead.interval);
      row.push_back(or_null(alone ? "" : method_of(methods.back())));
      row.push_back(
          or_null(alone ? std::nullopt : std::optional(methods.back().figure.median_us())));
      table.rows.push_back(std::move(row));
      judged_runs.push_back(f.run_id);
      leads.push_back(lead);
    }
  }
  const auto verdicts = judge_by_run(judged_runs, leads);
  for (std::size_t i = 0; i < verdicts.size(); ++i)
    table.rows[i].emplace_back(std::string(verdicts[i] == Verdict::slower ? "yes" : "no"));
  return table;
}

}  // namespace

Query atlas_query() {
  return {.title = "Regime atlas of training",
          .row =
              "one model, batch and number of workers: the best method with its speed-up, the "
              "runner-up, and whether the lead is sure",
          .columns = R"(
run_id environment backend model intensity batch workers
methods | integer | methods that were measured
launches
best | text | the fastest method with its settings
step_us
speedup | real | throughput over one worker's
runner_up lead worst
worst_step_us | us, real | a step of the slowest
lead_is_sure
)",
          .method = verdict_method(),
          .of_runs = atlas_table};
}

}  // namespace dynamiccl
