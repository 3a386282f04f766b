#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/statistics/alpha_beta.hpp"
#include "core/statistics/statistics.hpp"
#include "core/vocabulary/units.hpp"
#include "reports/model/figures.hpp"

namespace dynamiccl {

/// T(m) = alpha + beta m over a range of sizes, fitted to the medians over launches.
struct FittedLine {
  std::string model;  ///< "one line", or "piece 1 of 2" where one line does not do
  Bytes from;
  Bytes to;
  std::size_t sizes = 0;
  std::size_t blocks = 0;  ///< that have all of the sizes
  AlphaBeta fit;
  /// Root mean square of the medians' distances from the line, relative to them. nullopt where two
  /// sizes determine it; a line whose start-up time was cut off at 0, or whose slope was, misses
  /// them too.
  std::optional<double> error;
  /// How its sizes were timed. Calls back to back and calls alone have start-up times of their own:
  /// a line over both has no interval.
  std::set<std::string> cadences;
  /// From the same line fitted to each block: signed ranks from six blocks on, t below, widened to
  /// hold the fit's own value. The blocks' start-up times count also below 0, the interval ends
  /// there. nullopt below three blocks, and where it would lie at or below 0: a start-up time too
  /// short to be known from these sizes.
  std::optional<Interval> alpha_us;
  std::optional<double> bytes_per_s;          ///< nullopt for a flat line
  std::optional<Interval> bytes_per_s_range;  ///< as alpha_us; nullopt where it has no end
};

/// All sizes of what is otherwise one cell, from launches of one regime: what moves data in another
/// way has another line.
struct FittedCurve {
  CellFigure example;     ///< the cell of the smallest size, with the launches of this regime
  std::size_t place = 0;  ///< of the first of its cells in the list given
  std::vector<FittedLine> lines;  ///< the one line, then the pieces where there are several
};

/// Curves of at least two sizes, in the order of the figures.
std::vector<FittedCurve> fit_curves(const std::vector<CellFigure>& figures);

}  // namespace dynamiccl
