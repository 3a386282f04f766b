#include "reports/model/c2c.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/statistics/alpha_beta.hpp"
#include "core/statistics/saturation.hpp"
#include "core/statistics/statistics.hpp"
#include "core/vocabulary/counted.hpp"
#include "core/vocabulary/json.hpp"
#include "core/vocabulary/parsed_json.hpp"
#include "core/vocabulary/text.hpp"
#include "core/vocabulary/units.hpp"
#include "reports/model/table_view.hpp"
#include "train/spec/training_method.hpp"

namespace dynamiccl {
namespace {

constexpr double kBytesPerParameter = 4;  // gradients are fp32

/// Both halves of a message by size: split all-reduces and servers have a second one.
std::vector<TimedSize> cost_points(const nlohmann::json& time, const nlohmann::json& second) {
  std::map<std::uint64_t, double> sums;
  for (const auto* table : {&time, &second}) {
    if (!table->is_array()) continue;
    for (const auto& point : *table)
      if (point.is_array() && point.size() == 2 && point[0].is_number() && point[1].is_number())
        sums[point[0].get<std::uint64_t>()] += point[1].get<double>();
  }
  std::vector<TimedSize> points;
  for (const auto& [bytes, us] : sums)
    if (us > 0) points.push_back({Bytes(bytes), Micros(us)});
  return points;
}

/// All launches of one cell.
struct CellLaunches {
  std::map<std::string, std::vector<double>> values;
  std::vector<TimedSize> points;

  [[nodiscard]] std::optional<double> typical(const std::string& name) const {
    const auto found = values.find(name);
    if (found == values.end() || found->second.empty()) return std::nullopt;
    return median(found->second);
  }
};

std::map<std::string, CellLaunches> load_launches(const Reader& reader, std::int64_t run_row) {
  const Table table = reader.query(
      "SELECT m.run_id, m.environment, m.backend, m.architecture, m.collective, m.size_bytes, "
      "m.ranks, m.datatype, m.algorithm, m.in_place, m.group_knobs, m.cell_knobs, t.intensity, "
      "t.c2c_predicted, t.c2c_measured, t.compute_us, t.communication_us, t.speedup, "
      "t.step_samples, "
      "r.messages, r.cost_us, r.cost_second_us "
      "FROM v_training t JOIN v_measurement m ON m.measurement_row = t.measurement_row "
      "JOIN v_training_rank r ON r.measurement_row = t.measurement_row AND r.first_worker "
      "WHERE t.run_row = ?1 AND t.counts ORDER BY t.block",
      {run_row});
  const TableView rows(table);
  std::map<std::string, CellLaunches> launches;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CellLaunches& one = launches[key_without(figure_cell(rows, i), "")];
    for (const char* name : {"intensity", "c2c_predicted", "c2c_measured", "compute_us",
                             "communication_us", "speedup", "step_samples", "messages"})
      if (const auto value = rows.real(i, name)) one.values[name].push_back(*value);
    const auto points = cost_points(json_or_discarded(rows.text(i, "cost_us")),
                                    json_or_discarded(rows.text(i, "cost_second_us")));
    one.points.insert(one.points.end(), points.begin(), points.end());
  }
  return launches;
}

/// The same exchange in the run's micro-benchmark: all sizes of the library's all-reduce or, with a
/// server, of push_pull, by environment, backend and ranks.
std::vector<TimedSize> micro_benchmark(const std::vector<CellFigure>& figures,
                                       const CellFigure& like) {
  const std::string collective = like.architecture == "ps" ? "push_pull" : "allreduce";
  std::vector<TimedSize> points;
  for (const auto& f : figures)
    if (f.collective == collective && f.environment == like.environment &&
        f.backend == like.backend && f.ranks == like.ranks && f.algorithm == "library")
      points.push_back({Bytes(static_cast<std::uint64_t>(f.size_bytes)), Micros(f.median_us())});
  return points;
}

void fit_messages(C2cCell& cell, const CellLaunches& launches,
                  const std::vector<CellFigure>& figures) {
  auto line = fit_alpha_beta(launches.points);
  cell.fitted_from = "cost table";
  if (!line) {
    line = fit_alpha_beta(micro_benchmark(figures, cell.figure));
    cell.fitted_from = "micro-benchmark";
  }
  if (!line) {
    cell.fitted_from.clear();
    return;
  }
  cell.alpha_us = line->alpha.count();
  cell.beta_us_per_byte = line->beta_us_per_byte;
}

std::string settings_without_ranks(const C2cCell& c) {
  return join({c.figure.environment, c.figure.backend, c.figure.algorithm, c.cell.model,
               std::to_string(c.cell.batch), c.cell.settings.dump(), c.figure.group_knobs},
              "|");
}

/// Cost per byte grows with N as f(N) does: on one link, so that the fewest workers set the scale.
void fit_f_over_ranks(std::vector<C2cCell>& cells) {
  std::map<std::string, std::vector<C2cCell*>> by_settings;
  for (auto& cell : cells)
    if (cell.alpha_us && cell.beta_us_per_byte > 0)
      by_settings[settings_without_ranks(cell)].push_back(&cell);
  for (auto& [settings, alike] : by_settings) {
    const auto fewest = *std::min_element(
        alike.begin(), alike.end(),
        [](const auto* a, const auto* b) { return a->cell.workers < b->cell.workers; });
    const bool several = std::any_of(alike.begin(), alike.end(), [&](const auto* cell) {
      return cell->cell.workers != fewest->cell.workers;
    });
    if (!several) continue;
    for (auto* cell : alike)
      cell->f_fitted = fewest->f_formula * cell->beta_us_per_byte / fewest->beta_us_per_byte;
  }
}

double parameter_bytes(const C2cCell& cell) { return static_cast<double>(cell.figure.size_bytes); }

std::string advice_of(const C2cCell& best, std::size_t methods, const std::string& help) {
  const double over = best.figure.median_us() / best.compute_us;
  const auto ratio = best.ratio_predicted();
  const std::string why =
      ratio && *ratio > 1
          ? fmt::format("C2C has communication take {:.2g} times the computation", *ratio)
      : ratio ? fmt::format(
                    "C2C has communication hide behind computation ({:.2g} of it), start-up times "
                    "and contention do not",
                    *ratio)
              : std::string("no cost of its messages was measured");
  return fmt::format(
      "{}: {}, {}, batch {}, {} on {}: the best of {} lossless method{} ({}) takes {:.2f} "
      "times the step without communication; {}: send less (a lossy method, a larger batch, local "
      "steps) or use a faster link; {}",
      kLosslessSaturated, best.figure.environment, best.cell.model, best.cell.batch,
      counted(best.cell.workers, "worker"), best.figure.backend, methods, methods == 1 ? "" : "s",
      best.figure.algorithm, over, why, help);
}

}  // namespace

std::optional<double> C2cCell::link_bytes_per_s() const {
  if (!alpha_us || beta_us_per_byte <= 0) return std::nullopt;
  return f_formula / beta_us_per_byte * 1e6;
}

std::optional<double> C2cCell::ratio_predicted() const {
  if (!alpha_us || compute_us <= 0) return std::nullopt;
  const auto link = link_bytes_per_s();
  return link ? c2c_predicted * kBytesPerParameter * flops_per_s / *link : 0;
}

std::optional<double> C2cCell::ratio_measured() const {
  if (!communication_us || compute_us <= 0) return std::nullopt;
  return *communication_us / compute_us;
}

std::optional<double> C2cCell::expected_us() const {
  if (!alpha_us) return std::nullopt;
  const double sending_us = messages * *alpha_us + parameter_bytes(*this) * beta_us_per_byte;
  const auto method = find_named<TrainingMethod>(figure.algorithm);
  // One message of all gradients waits for the last of them.
  return method && method_row(*method).grouping == MessageGrouping::together
             ? compute_us + sending_us
             : std::max(compute_us, sending_us);
}

std::vector<C2cCell> c2c_cells(const Reader& reader, std::int64_t run_row,
                               const std::vector<CellFigure>& figures) {
  const auto launches = load_launches(reader, run_row);
  std::vector<C2cCell> cells;
  for (const auto& figure : figures) {
    const auto found = launches.find(key_without(figure, ""));
    if (figure.collective != "training" || found == launches.end()) continue;
    const CellLaunches& own = found->second;
    C2cCell cell;
    cell.figure = figure;
    cell.cell = trained_cell(figure);
    cell.intensity = own.typical("intensity").value_or(0);
    cell.c2c_predicted = own.typical("c2c_predicted").value_or(0);
    cell.c2c_measured = own.typical("c2c_measured");
    cell.step_samples = own.typical("step_samples");
    const double work = static_cast<double>(cell.cell.batch) * cell.intensity;  // M I
    cell.f_formula = cell.c2c_predicted * work;
    if (cell.c2c_measured) cell.f_counted = *cell.c2c_measured * work;
    cell.compute_us = own.typical("compute_us").value_or(0);
    if (cell.compute_us > 0)
      cell.flops_per_s = work * parameter_bytes(cell) / kBytesPerParameter / cell.compute_us * 1e6;
    // A round's communication next to one step's computation would be no ratio.
    const bool by_rounds = cell.cell.settings.contains("local_steps");
    if (!by_rounds) cell.communication_us = own.typical("communication_us");
    cell.messages = own.typical("messages").value_or(1);
    if (const auto speedups = own.values.find("speedup"); speedups != own.values.end())
      cell.speedups = speedups->second;
    if (!by_rounds) fit_messages(cell, own, figures);
    cells.push_back(std::move(cell));
  }
  fit_f_over_ranks(cells);
  return cells;
}

std::vector<Saturation> saturations(MeasuredTargets& measured, std::int64_t run_row,
                                    const std::vector<C2cCell>& cells) {
  std::vector<Saturation> found;
  std::map<std::string, std::size_t> places;
  for (const auto& cell : cells) {
    if (!trained_as_one(cell.figure)) continue;  // its sample is no step of plain SGD
    const auto& settings = cell.cell.settings;
    const std::string workload =
        join({cell.figure.environment, cell.figure.backend, cell.cell.model,
              std::to_string(cell.cell.batch), settings.value("sequence", std::string()),
              settings.value("precision", std::string()), std::to_string(cell.cell.workers)},
             "|");
    const auto [place, is_new] = places.emplace(workload, found.size());
    if (is_new) found.emplace_back();
    Saturation& one = found[place->second];
    ++one.methods;
    if (one.best == nullptr || cell.figure.median_us() < one.best->figure.median_us())
      one.best = &cell;
  }
  for (auto& one : found) {
    one.saturated =
        lossless_saturated(Micros{one.best->figure.median_us()}, Micros{one.best->compute_us});
    if (!one.saturated) continue;
    const CellFigure& best = one.best->figure;
    const TrainedCell& cell = one.best->cell;
    const std::string help = measured_help(
        measured, run_row, {best.environment, best.backend, cell.model, cell.batch, cell.workers},
        best.regimes);
    one.advice = advice_of(*one.best, one.methods, help);
  }
  return found;
}

std::vector<std::string> saturation_notes(const Reader& reader, std::int64_t run_row,
                                          const std::vector<C2cCell>& cells) {
  std::vector<std::string> notes;
  MeasuredTargets measured(reader);
  for (const auto& one : saturations(measured, run_row, cells))
    if (one.saturated) notes.push_back(one.advice);
  return notes;
}

}  // namespace dynamiccl
