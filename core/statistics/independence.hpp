#pragma once

#include <optional>
#include <vector>

namespace dynamiccl {

/// Are the launches of a group independent of their order, as every interval over launches takes
/// for granted?
struct IndependenceTest {
  int launches = 0;
  double lag1 = 0;     ///< autocorrelation of neighbouring launches, mean over cells
  double p_lag1 = 1;   ///< chance of one as far from what random order gives
  double trend = 0;    ///< correlation of the launches' times with their order, all cells together
  double p_trend = 1;  ///< chance of one as large in random order
  /// Bonferroni over both tests.
  [[nodiscard]] double p() const;
};

inline constexpr int kFewestLaunchesToTest = 6;

/// Permutation test on the logarithms of launch medians: all cells of a launch are permuted
/// together, so that it holds however the cells of one launch depend on each other. All orders up
/// to 6 launches, else 5,000 random ones from a fixed seed.
/// @param series one vector of launch medians per cell, all in the order of launching and of one
/// length; cells without spread are left out
/// @returns nullopt below 6 launches, where no order is unlikely enough to say anything
std::optional<IndependenceTest> test_independence(const std::vector<std::vector<double>>& series);

}  // namespace dynamiccl
