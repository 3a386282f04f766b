#include "reports/model/flip_points.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>

#include "core/vocabulary/parsed_json.hpp"
#include "reports/model/exchanges.hpp"
#include "train/spec/training_method.hpp"

namespace dynamiccl {
namespace {

FlipCell training_cell_of(CellFigure figure) {
  const auto trained = trained_cell(figure);
  FlipCell cell{std::move(figure), trained.model, trained.batch, "", false};
  cell.figure.ranks = trained.workers;
  cell.figure.size_bytes = 0;
  cell.figure.cell_knobs = trained.settings.dump();
  return cell;
}

/// Settings that only one side has: they name it, and are no longer what must be equal.
nlohmann::json taken_settings(FlipCell& cell, const std::array<const char*, 4>& names) {
  auto settings = parsed_json(cell.figure.cell_knobs);
  auto taken = nlohmann::json::object();
  for (const char* name : names)
    if (settings.contains(name)) {
      taken[name] = settings[name];
      settings.erase(name);
    }
  cell.figure.cell_knobs = settings.dump();
  return taken;
}

std::vector<FlipCell> architectures(const std::vector<CellFigure>& figures) {
  std::vector<FlipCell> cells;
  for (const auto& figure : as_exchanges(figures)) {
    FlipCell cell{figure, "", 0, figure.architecture, false};
    if (figure.collective == "training") {
      cell = training_cell_of(figure);
      cell.figure.ranks = figure.ranks;  // workers already
      const auto own = taken_settings(cell, {"servers", "placement", "", ""});
      cell.side = figure.architecture + (own.empty() ? "" : " " + own.dump());
    }
    cell.second = figure.architecture != "ps";
    cell.figure.architecture.clear();
    cells.push_back(std::move(cell));
  }
  return cells;
}

/// Settings that only a method has which sends several layers' gradients as one, or cuts a layer's
/// into parts; nullopt: it does neither. PyTorch's engine merges too, which is not ours.
std::optional<std::array<const char*, 4>> own_settings(const TrainingMethodRow& row) {
  if (row.engine) return std::nullopt;
  if (row.order == SendOrder::by_urgency) return {{"partition", "credit", "servers", "placement"}};
  if (row.grouping == MessageGrouping::merged) return {{"merge", "", "", ""}};
  if (row.grouping == MessageGrouping::buckets) return {{"bucket", "", "", ""}};
  return std::nullopt;
}

std::vector<FlipCell> groupings(const std::vector<CellFigure>& figures) {
  std::vector<FlipCell> cells;
  for (const auto& figure : figures) {
    const auto method = find_named<TrainingMethod>(figure.algorithm);
    if (figure.collective != "training" || !method) continue;
    const auto names = own_settings(method_row(*method));
    if (!names) continue;
    FlipCell cell = training_cell_of(figure);
    const auto own = taken_settings(cell, *names);
    cell.side = figure.algorithm + (own.empty() ? "" : " " + own.dump());
    cell.second = method_row(*method).order == SendOrder::by_urgency;
    cell.figure.algorithm.clear();
    cell.figure.architecture.clear();
    cells.push_back(std::move(cell));
  }
  return cells;
}

void add_points(std::vector<FlipPoint>& points, const std::string& factor,
                const std::vector<FlipCell>& cells) {
  std::map<std::string, std::vector<const FlipCell*>> seconds;
  for (const auto& cell : cells)
    if (cell.second) seconds[key_of(cell)].push_back(&cell);
  for (const auto& cell : cells) {
    const auto partners = seconds.find(key_of(cell));
    if (cell.second || partners == seconds.end()) continue;
    for (const FlipCell* partner : partners->second)
      points.push_back({factor, cell, partner->side, time_ratio(partner->figure, cell.figure),
                        Verdict::unclear});
  }
}

/// Every two backends: is the environment said to decide which is the best?
void add_backends(std::vector<FlipPoint>& points, const std::vector<CellFigure>& figures) {
  std::map<std::string, std::vector<FlipCell>> by_backend;
  for (const auto& figure : with_stated_memory(figures)) {
    const bool training = figure.collective == "training";
    FlipCell cell = training ? training_cell_of(figure) : FlipCell{figure, "", 0, "", false};
    if (!training && figure.architecture == "ps") --cell.figure.ranks;  // rank 0 serves
    cell.side = figure.backend;
    cell.figure.backend.clear();
    by_backend[figure.backend].push_back(std::move(cell));
  }
  for (auto a = by_backend.begin(); a != by_backend.end(); ++a)
    for (auto b = std::next(a); b != by_backend.end(); ++b) {
      auto cells = a->second;
      for (auto cell : b->second) {
        cell.second = true;
        cells.push_back(std::move(cell));
      }
      add_points(points, std::string(kBackendFactor), cells);
    }
}

/// Whole KiB or MiB where that leaves two digits: more would claim more than a few sizes can tell.
double rounded_size(double bytes) {
  double unit = 1;
  while (bytes / (unit * 1024) >= 10) unit *= 1024;
  return std::round(bytes / unit) * unit;
}

}  // namespace

double equal_size(const std::vector<std::pair<std::int64_t, double>>& log_ratios) {
  for (std::size_t i = 0; i + 1 < log_ratios.size(); ++i) {
    const auto& [size_a, ratio_a] = log_ratios[i];
    const auto& [size_b, ratio_b] = log_ratios[i + 1];
    if ((ratio_a > 0) == (ratio_b > 0)) continue;
    if (size_a <= 0) return static_cast<double>(size_b);  // no logarithm leads there from nothing
    const double share = ratio_a / (ratio_a - ratio_b);
    const double from = std::log(static_cast<double>(size_a));
    const double to = std::log(static_cast<double>(size_b));
    return rounded_size(std::exp(from + share * (to - from)));
  }
  return static_cast<double>(log_ratios.back().first);
}

std::string key_of(const FlipCell& cell) {
  return fmt::format("{}\n{}\n{}", key_without(cell.figure, ""), cell.model, cell.batch);
}

std::vector<FlipPoint> flip_points(const std::vector<CellFigure>& figures) {
  std::vector<FlipPoint> points;
  add_points(points, "architecture", architectures(figures));
  add_points(points, "fusion or partition", groupings(figures));
  add_backends(points, figures);
  std::vector<std::string> runs;
  std::vector<Ratio> ratios;
  for (const auto& point : points) {
    runs.push_back(point.a.figure.run_id);
    ratios.push_back(point.ratio);
  }
  const auto verdicts = judge_by_run(runs, ratios);
  for (std::size_t i = 0; i < points.size(); ++i) points[i].verdict = verdicts[i];
  return points;
}

}  // namespace dynamiccl
