#pragma once

#include "workers/communicator.hpp"
#include "workers/data/data.hpp"

namespace dynamiccl {

/// Calls the library's barrier once for each rank, which enters it a millisecond after it has heard
/// that the others are about to: their calls must take as long, by their own clocks. A busy machine
/// makes them longer alone, so that none is wrong by chance. Ranks: all.
/// @returns a rank's calls, and those that ended before the late one came
DataVerdict check_barrier(Communicator& comm);

}  // namespace dynamiccl
