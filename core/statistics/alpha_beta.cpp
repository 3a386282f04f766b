#include "core/statistics/alpha_beta.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace dynamiccl {
namespace {

struct Fit {
  double alpha = 0;
  double beta = 0;
  double squares = 0;  ///< sum of squared relative residuals
  double free_alpha = 0;
};

double squares_of(const std::vector<TimedSize>& points, double alpha, double beta) {
  double sum = 0;
  for (const auto& point : points) {
    const double time = point.time.count();
    const double residual = (alpha + beta * static_cast<double>(point.size.count()) - time) / time;
    sum += residual * residual;
  }
  return sum;
}

/// Weighted least squares with weights 1/time^2; a negative parameter is set to zero and the other
/// refitted.
Fit fit_line(const std::vector<TimedSize>& points) {
  double w = 0, wm = 0, wmm = 0, wt = 0, wmt = 0;
  for (const auto& point : points) {
    const double m = static_cast<double>(point.size.count());
    const double t = point.time.count();
    const double weight = 1.0 / (t * t);
    w += weight;
    wm += weight * m;
    wmm += weight * m * m;
    wt += weight * t;
    wmt += weight * m * t;
  }
  const double determinant = w * wmm - wm * wm;
  double alpha = 0;
  double beta = 0;
  if (determinant > 0) {
    alpha = (wmm * wt - wm * wmt) / determinant;
    beta = (w * wmt - wm * wt) / determinant;
  }
  const double free_alpha = alpha;
  if (alpha < 0) {
    alpha = 0;
    beta = wmm > 0 ? wmt / wmm : 0;
  } else if (beta < 0) {
    beta = 0;
    alpha = wt / w;
  }
  // A falling line starts above the level one that stands for it: that is no start-up time.
  return {alpha, beta, squares_of(points, alpha, beta), std::min(free_alpha, alpha)};
}

bool usable(const std::vector<TimedSize>& points) {
  std::set<std::uint64_t> sizes;
  for (const auto& point : points) {
    if (point.time.count() > 0) sizes.insert(point.size.count());
  }
  return sizes.size() >= 2;
}

AlphaBeta to_line(const Fit& fit, std::size_t count) {
  return {Micros(fit.alpha), fit.beta, std::sqrt(fit.squares / static_cast<double>(count)),
          Micros(fit.free_alpha)};
}

std::vector<TimedSize> slice(const std::vector<TimedSize>& points, std::size_t from,
                             std::size_t to) {
  return {points.begin() + static_cast<std::ptrdiff_t>(from),
          points.begin() + static_cast<std::ptrdiff_t>(to)};
}

/// Best cuts of the sorted points into exactly `pieces` ranges; empty when there are too few sizes.
std::vector<std::size_t> best_cuts(const std::vector<TimedSize>& points, std::size_t pieces,
                                   double& squares) {
  const std::size_t n = points.size();
  constexpr double never = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> cost(pieces + 1, std::vector<double>(n + 1, never));
  std::vector<std::vector<std::size_t>> cut(pieces + 1, std::vector<std::size_t>(n + 1, 0));
  cost[0][0] = 0;
  for (std::size_t piece = 1; piece <= pieces; ++piece) {
    for (std::size_t end = 1; end <= n; ++end) {
      for (std::size_t begin = 0; begin < end; ++begin) {
        if (cost[piece - 1][begin] == never) continue;
        // Points of one size stay together: a cut inside would give two lines for the same size.
        if (begin > 0 && points[begin].size == points[begin - 1].size) continue;
        const auto part = slice(points, begin, end);
        if (!usable(part)) continue;
        const double total = cost[piece - 1][begin] + fit_line(part).squares;
        if (total < cost[piece][end]) {
          cost[piece][end] = total;
          cut[piece][end] = begin;
        }
      }
    }
  }
  squares = cost[pieces][n];
  if (squares == never) return {};
  std::vector<std::size_t> cuts{n};
  for (std::size_t piece = pieces; piece > 0; --piece) cuts.push_back(cut[piece][cuts.back()]);
  std::reverse(cuts.begin(), cuts.end());
  return cuts;
}

}  // namespace

std::optional<AlphaBeta> fit_alpha_beta(const std::vector<TimedSize>& points) {
  if (!usable(points)) return std::nullopt;
  return to_line(fit_line(points), points.size());
}

std::optional<PiecewiseAlphaBeta> fit_piecewise(std::vector<TimedSize> points, int max_pieces) {
  std::erase_if(points, [](const TimedSize& point) { return point.time.count() <= 0; });
  if (!usable(points)) return std::nullopt;
  std::sort(points.begin(), points.end(),
            [](const auto& a, const auto& b) { return a.size < b.size; });
  const auto n = static_cast<double>(points.size());
  std::optional<PiecewiseAlphaBeta> best;
  double best_criterion = std::numeric_limits<double>::infinity();
  for (int pieces = 1; pieces <= max_pieces; ++pieces) {
    double squares = 0;
    const auto cuts = best_cuts(points, static_cast<std::size_t>(pieces), squares);
    if (cuts.empty()) break;
    // 1e-4 per point: below 1 % relative error a better fit is noise, not structure.
    const double criterion = n * std::log(squares / n + 1e-4) + 3.0 * pieces * std::log(n);
    if (criterion >= best_criterion) continue;
    best_criterion = criterion;
    PiecewiseAlphaBeta result;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      const auto part = slice(points, cuts[i], cuts[i + 1]);
      result.pieces.push_back(
          {part.front().size, part.back().size, to_line(fit_line(part), part.size())});
    }
    result.relative_error = std::sqrt(squares / n);
    best = std::move(result);
  }
  return best;
}

}  // namespace dynamiccl
