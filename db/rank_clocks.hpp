#pragma once

#include <optional>
#include <vector>

#include "core/wire/record.hpp"
#include "db/measurement_statistics.hpp"

namespace dynamiccl {

/// How a rank's sample starts become times on rank 0's clock.
struct RankClock {
  double zero_us = 0;    ///< the rank's clock at its samples' time 0
  double at_us = 0;      ///< the rank's clock where the offset was found
  double offset_us = 0;  ///< the rank's clock minus rank 0's there; 0 on a shared clock
  double drift = 0;      ///< change of the offset per microsecond
  double error_us = 0;   ///< of the offset; 0 on a shared clock

  /// @param start_us as in SampleArrays
  [[nodiscard]] double global_us(double start_us) const;
};

/// nullopt when the rank left no comparison of its clock.
std::optional<RankClock> rank_clock(const HelloRecord* hello, const ClockRecord* clock);

/// How far apart the ranks came to a cell's measured samples, microseconds.
struct ArrivalSkew {
  double median_us = 0;
  double max_us = 0;
  double error_us = 0;  ///< what comparing the clocks may err by: the two largest errors together
};

/// @param clocks by rank
/// @returns nullopt below two ranks with samples, or when one of them has no clock
std::optional<ArrivalSkew> arrival_skew(const std::vector<RankCell>& cells,
                                        const std::vector<std::optional<RankClock>>& clocks);

}  // namespace dynamiccl
