#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace dynamiccl {

/// Below this many values no test can tell a start from noise.
constexpr std::size_t kFewestIterationsToTell = 20;

/// How many leading values of a launch's measured iterations differ from the rest: was the warm-up
/// long enough? Two tests over the values in their order, either of which may find a start:
/// * a change point in the first half of up to 40 batch medians (rank statistic of every split,
///   largest of all; batches, as neighbouring iterations are correlated);
/// * four or more leading values, all beyond the 90 % quantile of the second half.
/// The start must also be at least 2 % and one noise (MAD) away from the rest, so that what no
/// median would notice is not reported.
/// @returns the number of leading values, 0 = settled from the start; nullopt below
/// kFewestIterationsToTell values
std::optional<std::size_t> settled_after(const std::vector<double>& values);

}  // namespace dynamiccl
