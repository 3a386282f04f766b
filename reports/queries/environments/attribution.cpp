#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/vocabulary/json.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"
#include "reports/model/exchanges.hpp"
#include "reports/model/figures.hpp"
#include "reports/model/table_view.hpp"
#include "reports/queries/query.hpp"

namespace dynamiccl {
namespace {

constexpr const char* kAttributionColumns = R"(
run_id environment backend architecture model batch method ranks group_knobs
step_us | us, real | one training step
bare_step_us | us, real | the same on bare metal
step_difference_us | us, real | here minus bare metal
compute_difference_us | us, real | of it: computing
exposed_difference_us | us, real | of it: waiting for gradients
rest_difference_us | us, real | of it: what neither is
messages | text | messages of a step, by size
benchmark_us | us, real | what the micro-benchmark's times of these messages add up to
bare_benchmark_us | us, real | the same on bare metal
benchmark_difference_us | us, real | here minus bare metal
communication_us
bare_communication_us | us, real | the same on bare metal
communication_difference_us | us, real | here minus bare metal
benchmark_over_communication | real | benchmark_us over communication_us
correlation | real | of the logarithms of both, over all cells of the run
correlated_cells | integer | how many those are
note settings
)";

/// One training cell by its launch with the median step; parts are the slowest worker's.
struct TrainedStep {
  CellFigure axes;
  TrainedCell cell;
  std::optional<double> step_us;
  std::optional<double> compute_us;
  std::optional<double> exposed_us;
  std::optional<double> communication_us;
  std::vector<std::pair<double, int>> messages;  ///< bytes and server of each
  std::optional<double> benchmark_us;  ///< its messages by the micro-benchmark, one by one
  std::string missing;                 ///< why that is not known
};

constexpr const char* kSteps = R"(
WITH numbered AS (
  SELECT v.*, m.group_knobs, m.cell_knobs, m.collective, m.size_bytes, m.datatype, m.algorithm, m.in_place,
         row_number() OVER (PARTITION BY v.cell_id ORDER BY v.step_us) AS place,
         count(*) OVER (PARTITION BY v.cell_id) AS launches
  FROM v_training v JOIN v_measurement m ON m.measurement_row = v.measurement_row
  WHERE v.run_row = ?1 AND v.counts
)
SELECT n.*, n.forward_us + n.backward_us + n.update_us AS computing_us,
       t.pieces
FROM numbered n
JOIN v_training_rank t ON t.measurement_row = n.measurement_row AND t.first_worker
WHERE n.place = (n.launches + 1) / 2
ORDER BY n.environment, n.backend, n.model, n.batch, n.ranks, n.method)";

std::vector<TrainedStep> load_steps(const Reader& reader, std::int64_t run) {
  const Table table = reader.query(kSteps, {run});
  const TableView rows(table);
  std::vector<TrainedStep> steps;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    TrainedStep step;
    step.axes = figure_cell(rows, i);
    step.cell = trained_cell(step.axes);
    step.step_us = rows.real(i, "step_us");
    step.compute_us = rows.real(i, "computing_us");
    step.exposed_us = rows.real(i, "exposed_us");
    step.communication_us = rows.real(i, "communication_us");
    const auto pieces = json_or_discarded(rows.text(i, "pieces"));
    if (pieces.is_array())
      for (const auto& piece : pieces)
        step.messages.emplace_back(sizeof(float) * piece.at(1).get<double>(),
                                   piece.at(2).get<int>());
    steps.push_back(std::move(step));
  }
  return steps;
}

/// Median time of the library's own algorithm by size.
using Benchmark = std::map<double, double>;

/// Benchmarks of a run's groups: all-reduce, and push and pull through a server.
std::map<std::string, Benchmark> load_benchmarks(const Reader& reader, std::int64_t run) {
  std::map<std::string, Benchmark> benchmarks;
  for (const CellFigure& figure : load_figures(reader, {run})) {
    if (figure.algorithm != "library" || figure.datatype != "float32") continue;
    if (figure.collective != "allreduce" && figure.collective != "push_pull") continue;
    auto& sizes = benchmarks[group_key(figure) + figure.collective];
    const auto [found, is_new] =
        sizes.try_emplace(static_cast<double>(figure.size_bytes), figure.median_us());
    if (!is_new) found->second = std::min(found->second, figure.median_us());
  }
  return benchmarks;
}

/// Between two measured sizes on the line between them; below the smallest its start-up counts.
/// @returns nullopt above the largest
std::optional<double> time_of(const Benchmark& benchmark, double bytes) {
  const auto above = benchmark.lower_bound(bytes);
  if (above == benchmark.end()) return std::nullopt;
  if (above == benchmark.begin()) return above->second;
  const auto below = std::prev(above);
  const double share = (bytes - below->first) / (above->first - below->first);
  return below->second + share * (above->second - below->second);
}

std::string size_of(double bytes) { return format_bytes(Bytes(static_cast<std::uint64_t>(bytes))); }

/// Adds up the messages' times; those to different servers go side by side.
void take_benchmark(TrainedStep& step, const std::map<std::string, Benchmark>& benchmarks) {
  const std::string collective = step.axes.architecture == "ps" ? "push_pull" : "allreduce";
  if (step.messages.empty()) {
    step.missing = "no messages stored";
    return;
  }
  if (step.cell.settings.value("packing", "none") != "none") {
    step.missing = "messages travel packed, those of the benchmark do not";
    return;
  }
  if (step.cell.settings.value("compression", "none") != "none") {
    step.missing = "messages travel encoded, those of the benchmark do not";
    return;
  }
  const auto found = benchmarks.find(group_key(step.axes) + collective);
  if (found == benchmarks.end()) {
    step.missing = fmt::format("no {} of float32 measured in the same run", collective);
    return;
  }
  std::map<int, double> by_server;
  for (const auto& [bytes, server] : step.messages) {
    const auto time_us = time_of(found->second, bytes);
    if (!time_us) {
      step.missing = fmt::format("{} of {} needed, measured up to {}", collective, size_of(bytes),
                                 size_of(found->second.rbegin()->first));
      return;
    }
    by_server[server] += *time_us;
  }
  double most_us = 0;
  for (const auto& [server, time_us] : by_server) most_us = std::max(most_us, time_us);
  step.benchmark_us = most_us;
}

/// Of the logarithms over all cells that have both times: cells of microseconds count as much as
/// those of seconds. nullopt below three cells, or where one side does not vary.
std::optional<double> correlation_of(const std::vector<std::pair<double, double>>& times) {
  const auto n = static_cast<double>(times.size());
  if (times.size() < 3) return std::nullopt;
  double sum_x = 0;
  double sum_y = 0;
  for (const auto& [x, y] : times) {
    sum_x += std::log(x);
    sum_y += std::log(y);
  }
  double xx = 0;
  double yy = 0;
  double xy = 0;
  for (const auto& [x, y] : times) {
    const double dx = std::log(x) - sum_x / n;
    const double dy = std::log(y) - sum_y / n;
    xx += dx * dx;
    yy += dy * dy;
    xy += dx * dy;
  }
  if (xx <= 0 || yy <= 0) return std::nullopt;
  return xy / std::sqrt(xx * yy);
}

std::optional<double> minus(std::optional<double> a, std::optional<double> b) {
  return a && b ? std::optional(*a - *b) : std::nullopt;
}

std::vector<Value> row_of(const TrainedStep& step, const TrainedStep* bare) {
  static const TrainedStep kNone;
  const bool itself = &step == bare;
  const TrainedStep& base = bare == nullptr || itself ? kNone : *bare;
  const auto whole = minus(step.step_us, base.step_us);
  const auto computing = minus(step.compute_us, base.compute_us);
  const auto exposed = minus(step.exposed_us, base.exposed_us);
  std::vector<std::string> notes;
  if (bare == nullptr) notes.emplace_back("not trained on bare metal");
  if (!step.missing.empty()) notes.push_back(step.missing);
  if (!base.missing.empty() && base.missing != step.missing)
    notes.push_back("on bare metal: " + base.missing);
  const auto ratio = step.benchmark_us && step.communication_us.value_or(0) > 0
                         ? std::optional(*step.benchmark_us / *step.communication_us)
                         : std::nullopt;
  const CellFigure& f = step.axes;
  return {f.run_id,
          f.environment,
          f.backend,
          f.architecture,
          step.cell.model,
          step.cell.batch,
          f.algorithm,
          f.ranks,
          f.group_knobs,
          or_null(step.step_us),
          or_null(base.step_us),
          or_null(whole),
          or_null(computing),
          or_null(exposed),
          or_null(minus(minus(whole, computing), exposed)),
          static_cast<std::int64_t>(step.messages.size()),
          or_null(step.benchmark_us),
          or_null(base.benchmark_us),
          or_null(minus(step.benchmark_us, base.benchmark_us)),
          or_null(step.communication_us),
          or_null(base.communication_us),
          or_null(minus(step.communication_us, base.communication_us)),
          or_null(ratio),
          Value{},
          Value{},
          or_null(join(notes, "; ")),
          f.cell_knobs};
}

Table attribution_table(const Reader& reader, const std::vector<std::int64_t>& runs,
                        const QueryScope& /*scope*/) {
  Table table = empty_table(kAttributionColumns);
  const std::size_t correlation_at = *column_index(table, "correlation");
  for (const std::int64_t run : runs) {
    auto steps = load_steps(reader, run);
    const auto benchmarks = load_benchmarks(reader, run);
    std::map<std::string, const TrainedStep*> bare;
    std::vector<std::pair<double, double>> times;
    for (TrainedStep& step : steps) {
      take_benchmark(step, benchmarks);
      if (step.axes.environment == "bare-metal")
        bare[key_without(step.axes, "environment")] = &step;
      if (step.benchmark_us.value_or(0) > 0 && step.communication_us.value_or(0) > 0)
        times.emplace_back(*step.benchmark_us, *step.communication_us);
    }
    const auto correlation = correlation_of(times);
    for (const TrainedStep& step : steps) {
      const auto base = bare.find(key_without(step.axes, "environment"));
      auto row = row_of(step, base == bare.end() ? nullptr : base->second);
      row[correlation_at] = or_null(correlation);
      row[correlation_at + 1] = static_cast<std::int64_t>(times.size());
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

}  // namespace

Query attribution_query() {
  return {.title = "What a difference in training time is made of",
          .row =
              "one training cell: its step minus the same on bare metal = difference of computing "
              "+ of waiting for gradients (exposed) + rest, with the micro-benchmark's times of "
              "its messages, added up, here and there; correlation: of the logarithms of those "
              "sums and of measured communication over all cells of the run",
          .columns = kAttributionColumns,
          .needs = "the same training on bare metal and in another environment",
          .measured_by = "run experiments/container_training.toml",
          .of_runs = attribution_table};
}

}  // namespace dynamiccl
