#pragma once

#include <cstddef>
#include <vector>

namespace dynamiccl {

/// Runs on each side of a change, at least: one that stands apart alone is no change that stays.
inline constexpr std::size_t kLeastStretch = 3;

/// Where a series of times changes its level for good: places of the first value of each new
/// stretch, in order. Stretches are cut in two at the largest difference of the mean logarithms
/// over its error, as long as so large a one is rarer than 1 in 100 among orders of the same
/// values drawn by chance. The same series has the same answer.
/// @param times above 0, one for each run, in the order of time
std::vector<std::size_t> change_points(const std::vector<double>& times);

}  // namespace dynamiccl
