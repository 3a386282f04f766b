#pragma once

#include <optional>
#include <vector>

#include "core/vocabulary/units.hpp"

namespace dynamiccl {

/// One measured point of a collective: size and typical time.
struct TimedSize {
  Bytes size;
  Micros time;
};

/// T(m) = alpha + beta * m (Hockney): start-up time and time per byte.
struct AlphaBeta {
  Micros alpha;
  double beta_us_per_byte = 0;
  /// Root mean square of the relative residuals over the fitted points.
  double relative_error = 0;
  /// Where the line meets size 0 with nothing kept above zero: alpha, or below zero where alpha is
  /// 0.
  Micros free_alpha;
  [[nodiscard]] Micros at(Bytes size) const {
    return alpha + Micros(beta_us_per_byte * static_cast<double>(size.count()));
  }
};

/// Least squares on relative residuals, so that small sizes count as much as large ones; alpha and
/// beta are kept at or above zero. nullopt for fewer than two different sizes.
std::optional<AlphaBeta> fit_alpha_beta(const std::vector<TimedSize>& points);

/// A straight line per range of sizes: protocol switches and cache sizes break a single one.
struct PiecewiseAlphaBeta {
  struct Piece {
    Bytes from;  ///< smallest size of the piece
    Bytes to;    ///< largest size of the piece
    AlphaBeta line;
  };
  std::vector<Piece> pieces;
  double relative_error = 0;
};

/// Best split into at most `max_pieces` lines by dynamic programming; another piece must pay for
/// its two parameters (Bayesian information criterion). Each piece has at least two different
/// sizes. nullopt for fewer than two different sizes.
std::optional<PiecewiseAlphaBeta> fit_piecewise(std::vector<TimedSize> points, int max_pieces = 3);

}  // namespace dynamiccl
