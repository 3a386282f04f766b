#pragma once

#include <optional>
#include <vector>

namespace dynamiccl {

/// A typical value or shift with its interval, on the scale of the values given.
struct RankEstimate {
  double value = 0;
  double low = 0;
  double high = 0;
};

/// Centre of values: the median of the averages of all pairs (Hodges and Lehmann 1963), with the
/// interval of the signed-rank test (Wilcoxon). A few values far out, as launches that a busy
/// neighbour slowed down, move it little; of normal values it wastes 5 %.
/// nullopt where so few values reach no such confidence (fewer than 6 at 95 %).
std::optional<RankEstimate> rank_centre(const std::vector<double>& values, double confidence);

/// Median with an interval of order statistics, which needs no symmetry: launches of two kinds or
/// with a long tail have their median inside it as often as said. Between the two neighbouring
/// pairs of order statistics whose exact confidences enclose the one asked for it interpolates
/// (Hettmansperger and Sheather 1986). nullopt where the smallest and largest value do not reach
/// the confidence (fewer than 6 at 95 %).
std::optional<RankEstimate> rank_median(std::vector<double> values, double confidence);

/// Shift from `base` to `other`: the median of all differences, with the interval of the rank-sum
/// test (Wilcoxon, Mann and Whitney). nullopt where so few values reach no such confidence.
std::optional<RankEstimate> rank_shift(const std::vector<double>& other,
                                       const std::vector<double>& base, double confidence);

}  // namespace dynamiccl
