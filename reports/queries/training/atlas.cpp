#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "core/statistics/verdict.hpp"
#include "core/vocabulary/text.hpp"
#include "reports/model/exchanges.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/leaf_difference.hpp"
#include "reports/model/table_view.hpp"
#include "reports/model/target_times.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

struct Trained {
  CellFigure figure;
  TrainedCell cell;
  double intensity = 0;
  std::optional<double> speedup;  ///< median over launches
  double target = 0;              ///< accuracy; the figure's times are those until it
  std::string task;
};

/// Those that train as one process would, by their steps; and all that have a target, by the time
/// until they reach it, in all launches.
std::vector<Trained> load(const Reader& reader, std::int64_t run) {
  const Table table = reader.query(
      "SELECT m.*, t.intensity AS intensity, t.speedup AS speedup "
      "FROM v_training t JOIN v_measurement m ON m.measurement_row = t.measurement_row "
      "WHERE t.run_row = ?1 AND t.counts",
      {run});
  const TableView rows(table);
  std::map<std::string, std::vector<double>> speedups;
  std::map<std::string, double> intensity;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto key = key_without(figure_cell(rows, i), "");
    intensity[key] = rows.real(i, "intensity").value_or(0);
    if (const auto speedup = rows.real(i, "speedup")) speedups[key].push_back(*speedup);
  }
  std::vector<Trained> trained;
  // A run that trained nothing may have ten thousand figures of other operations.
  const auto runs = intensity.empty() ? std::vector<std::int64_t>{} : std::vector{run};
  for (auto& figure : load_figures(reader, runs)) {
    const auto key = key_without(figure, "");
    const auto found = intensity.find(key);
    if (figure.collective != "training" || found == intensity.end()) continue;
    if (!trained_as_one(figure)) continue;
    Trained one{std::move(figure), {}, found->second, median(speedups[key]), 0, ""};
    one.cell = trained_cell(one.figure);
    trained.push_back(std::move(one));
  }
  for (auto& cell : target_cells(reader, run)) {
    if (cell.figure.launches.empty() || !cell.always_reached()) continue;
    const auto found = intensity.find(key_without(cell.figure, ""));
    trained.push_back({std::move(cell.figure), std::move(cell.cell),
                       found == intensity.end() ? 0 : found->second, std::nullopt, cell.target,
                       std::move(cell.task)});
  }
  return trained;
}

/// A regime of the atlas, in its order: environment, backend, intensity, model, batch, workers, and
/// what is to be reached.
auto regime_of(const Trained& t) {
  return std::tuple(environment_order(t.figure.environment), t.figure.backend, t.intensity,
                    t.cell.model, t.cell.batch, t.cell.workers, t.task);
}

std::string method_of(const Trained& t) {
  std::vector<std::string> words{t.figure.algorithm};
  if (!t.cell.settings.empty())
    for (auto& word : setting_words(t.cell.settings.dump())) words.push_back(std::move(word));
  return join(words, " ");
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
      row.push_back(or_null(best.target > 0 ? std::optional(best.target) : std::nullopt));
      row.push_back(or_null(best.speedup));
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
              "runner-up, and whether the lead is sure; with a target accuracy another row, of all "
              "configurations that reached it in every launch, lossy ones among them, by the time "
              "until then",
          .columns = R"(
run_id environment backend model intensity batch workers
methods | integer | methods that were measured
launches
best | text | the fastest method with its settings
step_us | us, real, interval | one training step; with a target the time until it was reached
target | real | accuracy on held-out samples that was to be reached; NULL: steps are compared
speedup | real | throughput over one worker's
runner_up lead worst
worst_step_us | us, real | the same of the slowest
lead_is_sure
)",
          .method = verdict_method(),
          .of_runs = atlas_table};
}

}  // namespace dynamiccl
