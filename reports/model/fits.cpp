#include "reports/model/fits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/statistics/rank_statistics.hpp"

namespace dynamiccl {
namespace {

constexpr double kConfidence = 0.95;
/// Relative distance up to which a line goes through its points.
constexpr double kExact = 1e-6;

/// The sizes of a curve, in ascending order.
struct Curve {
  std::vector<CellFigure> cells;
  std::size_t place = 0;
};

/// The figure once per regime that its launches were in.
std::map<std::string, CellFigure> by_regime(const CellFigure& figure) {
  std::map<std::string, CellFigure> parts;
  for (const auto& launch : figure.launches) {
    const auto [part, is_new] = parts.try_emplace(launch.regime);
    if (is_new) {
      part->second = figure;
      part->second.launches.clear();
      part->second.regimes.clear();
      if (!launch.regime.empty()) part->second.regimes.insert(launch.regime);
    }
    part->second.launches.push_back(launch);
  }
  return parts;
}

std::vector<Curve> curves_of(const std::vector<CellFigure>& figures) {
  std::vector<Curve> curves;
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < figures.size(); ++i) {
    for (auto& [regime, cell] : by_regime(figures[i])) {
      const auto key = key_without(figures[i], "size_bytes") + "\n" + regime;
      const auto [place, is_new] = places.emplace(key, curves.size());
      if (is_new) curves.push_back({{}, i});
      curves[place->second].cells.push_back(std::move(cell));
    }
  }
  for (auto& curve : curves) {
    std::sort(curve.cells.begin(), curve.cells.end(),
              [](const auto& a, const auto& b) { return a.size_bytes < b.size_bytes; });
  }
  return curves;
}

Bytes size_of(const CellFigure& figure) {
  return Bytes(static_cast<std::uint64_t>(figure.size_bytes));
}

std::vector<TimedSize> medians_between(const Curve& curve, Bytes from, Bytes to) {
  std::vector<TimedSize> points;
  for (const auto& figure : curve.cells) {
    const Bytes size = size_of(figure);
    if (size >= from && size <= to) points.push_back({size, Micros(figure.median_us())});
  }
  return points;
}

/// A block's own line. Its alpha is where the line meets size 0, also below time 0: cut off there,
/// as the fit's is, the blocks of a short start-up would all agree in 0 and hide how they differ.
struct BlockLine {
  double alpha_us = 0;
  double beta_us_per_byte = 0;
};

/// The same line, fitted to each block alone: launches of a block were started one after another,
/// so blocks are what repeats.
std::vector<BlockLine> lines_by_block(const Curve& curve, Bytes from, Bytes to) {
  std::map<std::int64_t, std::vector<TimedSize>> blocks;
  std::size_t most = 0;
  for (const auto& figure : curve.cells) {
    const Bytes size = size_of(figure);
    if (size < from || size > to) continue;
    for (const auto& launch : figure.launches) {
      auto& points = blocks[launch.block];
      points.push_back({size, Micros(launch.median_us)});
      most = std::max(most, points.size());
    }
  }
  std::vector<BlockLine> lines;
  for (const auto& [block, points] : blocks) {
    // A block that lacks a size would bend the line by what it lacks.
    if (points.size() < most) continue;
    if (const auto fit = fit_alpha_beta(points))
      lines.push_back({fit->free_alpha.count(), fit->beta_us_per_byte});
  }
  return lines;
}

/// Parameters may be zero, so not on logarithms; cut off at zero. Where all of it lies there, the
/// launches tell no more than that the parameter is too small for them: no interval.
std::optional<Interval> parameter_interval(const std::vector<double>& values, double point) {
  if (values.size() < 3) return std::nullopt;
  Interval interval;
  // The point comes from medians; a mean would follow a single slow block that they leave aside.
  if (const auto centre = rank_centre(values, kConfidence)) {
    interval = {centre->low, centre->high, kConfidence, "signed-rank"};
  } else {
    const auto n = static_cast<double>(values.size());
    const double reach = student_t_quantile(0.5 + kConfidence / 2, n - 1) *
                         standard_deviation(values) / std::sqrt(n);
    interval = {mean(values) - reach, mean(values) + reach, kConfidence, "t"};
  }
  if (interval.high <= 0) return std::nullopt;
  interval.low = std::max(0.0, std::min(interval.low, point));
  interval.high = std::max(interval.high, point);
  return interval;
}

/// Bytes per second of a time per byte; a flat line has no bandwidth.
std::optional<double> bandwidth(double beta_us_per_byte) {
  if (beta_us_per_byte <= 0) return std::nullopt;
  return 1e6 / beta_us_per_byte;
}

FittedLine fitted(const Curve& curve, std::string model, Bytes from, Bytes to,
                  const AlphaBeta& fit) {
  FittedLine line;
  line.model = std::move(model);
  line.from = from;
  line.to = to;
  line.fit = fit;
  line.sizes = medians_between(curve, from, to).size();
  if (line.sizes > 2 || fit.relative_error > kExact) line.error = fit.relative_error;
  for (const auto& figure : curve.cells) {
    if (size_of(figure) >= from && size_of(figure) <= to)
      line.cadences.insert(figure.cadences.begin(), figure.cadences.end());
  }
  std::vector<double> alphas;
  std::vector<double> betas;
  for (const auto& one : lines_by_block(curve, from, to)) {
    alphas.push_back(one.alpha_us);
    betas.push_back(one.beta_us_per_byte);
  }
  line.blocks = alphas.size();
  line.bytes_per_s = bandwidth(fit.beta_us_per_byte);
  if (line.cadences.size() > 1) return line;
  line.alpha_us = parameter_interval(alphas, fit.alpha.count());
  if (const auto beta = parameter_interval(betas, fit.beta_us_per_byte)) {
    // A short time per byte is a high bandwidth.
    const auto low = bandwidth(beta->high);
    const auto high = bandwidth(beta->low);
    if (low && high) line.bytes_per_s_range = Interval{*low, *high, kConfidence, beta->method};
  }
  return line;
}

std::vector<FittedLine> lines_of(const Curve& curve) {
  const auto points =
      medians_between(curve, size_of(curve.cells.front()), size_of(curve.cells.back()));
  std::vector<FittedLine> lines;
  if (const auto whole = fit_alpha_beta(points))
    lines.push_back(fitted(curve, "one line", points.front().size, points.back().size, *whole));
  const auto pieces = fit_piecewise(points);
  if (!pieces || pieces->pieces.size() < 2) return lines;
  for (std::size_t i = 0; i < pieces->pieces.size(); ++i) {
    const auto& piece = pieces->pieces[i];
    lines.push_back(fitted(curve, fmt::format("piece {} of {}", i + 1, pieces->pieces.size()),
                           piece.from, piece.to, piece.line));
  }
  return lines;
}

}  // namespace

std::vector<FittedCurve> fit_curves(const std::vector<CellFigure>& figures) {
  std::vector<FittedCurve> fits;
  for (const auto& curve : curves_of(figures)) {
    auto lines = lines_of(curve);
    if (!lines.empty()) fits.push_back({curve.cells.front(), curve.place, std::move(lines)});
  }
  return fits;
}

}  // namespace dynamiccl
