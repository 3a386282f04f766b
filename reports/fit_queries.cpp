#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/alpha_beta.hpp"
#include "core/statistics.hpp"
#include "reports/figure_queries.hpp"
#include "reports/table_view.hpp"

namespace dynamiccl {
namespace {

/// All sizes of what is otherwise one cell, by size.
using Curve = std::vector<const CellFigure*>;

std::vector<Curve> curves_of(const std::vector<CellFigure>& figures) {
  std::vector<Curve> curves;
  std::map<std::string, std::size_t> places;
  for (const auto& figure : figures) {
    const auto [place, is_new] = places.emplace(key_without(figure, "size_bytes"), curves.size());
    if (is_new) curves.emplace_back();
    curves[place->second].push_back(&figure);
  }
  for (auto& curve : curves) {
    std::sort(curve.begin(), curve.end(),
              [](const auto* a, const auto* b) { return a->size_bytes < b->size_bytes; });
  }
  return curves;
}

Bytes size_of(const CellFigure& figure) {
  return Bytes(static_cast<std::uint64_t>(figure.size_bytes));
}

std::vector<TimedSize> medians_between(const Curve& curve, Bytes from, Bytes to) {
  std::vector<TimedSize> points;
  for (const auto* figure : curve) {
    const Bytes size = size_of(*figure);
    if (size >= from && size <= to) points.push_back({size, Micros(figure->median_us())});
  }
  return points;
}

/// The same line, fitted to each block alone: launches of a block were started one after another,
/// so blocks are what repeats.
std::vector<AlphaBeta> fits_by_block(const Curve& curve, Bytes from, Bytes to) {
  std::map<std::int64_t, std::vector<TimedSize>> blocks;
  std::size_t most = 0;
  for (const auto* figure : curve) {
    const Bytes size = size_of(*figure);
    if (size < from || size > to) continue;
    for (const auto& launch : figure->launches) {
      auto& points = blocks[launch.block];
      points.push_back({size, Micros(launch.median_us)});
      most = std::max(most, points.size());
    }
  }
  std::vector<AlphaBeta> fits;
  for (const auto& [block, points] : blocks) {
    // A block that lacks a size would bend the line by what it lacks.
    if (points.size() < most) continue;
    if (const auto fit = fit_alpha_beta(points)) fits.push_back(*fit);
  }
  return fits;
}

/// t interval of the mean; parameters may be zero, so not on logarithms. Cut off at zero.
std::optional<Interval> parameter_interval(const std::vector<double>& values) {
  if (values.size() < 3) return std::nullopt;
  const auto n = static_cast<double>(values.size());
  const double reach = student_t_quantile(0.975, n - 1) * standard_deviation(values) / std::sqrt(n);
  const double centre = mean(values);
  return Interval{std::max(0.0, centre - reach), centre + reach, 0.95, "t"};
}

void add_interval(std::vector<Value>& row, std::optional<double> value,
                  const std::optional<Interval>& interval) {
  row.push_back(or_null(value));
  row.push_back(interval ? Value{interval->low} : Value{});
  row.push_back(interval ? Value{interval->high} : Value{});
}

/// Bytes per second of a time per byte; a flat line has no bandwidth.
std::optional<double> bandwidth(double beta_us_per_byte) {
  if (beta_us_per_byte <= 0) return std::nullopt;
  return 1e6 / beta_us_per_byte;
}

struct Line {
  std::string model;
  Bytes from;
  Bytes to;
  AlphaBeta fit;
};

std::vector<Value> fit_row(const Curve& curve, const Line& line) {
  auto row = cell_values(*curve.front());
  row.erase(row.begin() + static_cast<std::ptrdiff_t>(5));  // size_bytes: a line has many
  const auto points = medians_between(curve, line.from, line.to);
  std::vector<double> alphas;
  std::vector<double> betas;
  for (const auto& fit : fits_by_block(curve, line.from, line.to)) {
    alphas.push_back(fit.alpha.count());
    betas.push_back(fit.beta_us_per_byte);
  }
  row.emplace_back(line.model);
  row.emplace_back(static_cast<std::int64_t>(line.from.count()));
  row.emplace_back(static_cast<std::int64_t>(line.to.count()));
  row.emplace_back(static_cast<std::int64_t>(points.size()));
  row.emplace_back(static_cast<std::int64_t>(alphas.size()));
  add_interval(row, line.fit.alpha.count(), parameter_interval(alphas));
  auto of_bandwidth = parameter_interval(betas);
  if (of_bandwidth) {
    // A short time per byte is a high bandwidth.
    const auto low = bandwidth(of_bandwidth->high);
    const auto high = bandwidth(of_bandwidth->low);
    if (low && high) {
      of_bandwidth = Interval{*low, *high, 0.95, "t"};
    } else {
      of_bandwidth.reset();
    }
  }
  add_interval(row, bandwidth(line.fit.beta_us_per_byte), of_bandwidth);
  row.emplace_back(line.fit.beta_us_per_byte);
  // Two sizes lie on their line whatever they are.
  row.push_back(points.size() > 2 ? Value{100 * line.fit.relative_error} : Value{});
  return row;
}

std::vector<Line> lines_of(const Curve& curve) {
  const auto points = medians_between(curve, size_of(*curve.front()), size_of(*curve.back()));
  std::vector<Line> lines;
  if (const auto whole = fit_alpha_beta(points))
    lines.push_back({"one line", points.front().size, points.back().size, *whole});
  const auto pieces = fit_piecewise(points);
  if (!pieces || pieces->pieces.size() < 2) return lines;
  for (std::size_t i = 0; i < pieces->pieces.size(); ++i) {
    const auto& piece = pieces->pieces[i];
    lines.push_back({fmt::format("piece {} of {}", i + 1, pieces->pieces.size()), piece.from,
                     piece.to, piece.line});
  }
  return lines;
}

}  // namespace

Table fit_table(const std::vector<CellFigure>& figures, const QueryScope&) {
  Table table;
  add_cell_columns(table);
  std::erase(table.columns, "size_bytes");
  for (const char* name :
       {"model", "from_bytes", "to_bytes", "sizes", "blocks", "alpha_us", "alpha_low_us",
        "alpha_high_us", "bandwidth_bytes_per_s", "bandwidth_low_bytes_per_s",
        "bandwidth_high_bytes_per_s", "beta_us_per_byte", "error_percent"}) {
    table.columns.emplace_back(name);
  }
  for (const auto& curve : curves_of(figures)) {
    for (const auto& line : lines_of(curve)) table.rows.push_back(fit_row(curve, line));
  }
  return table;
}

}  // namespace dynamiccl
