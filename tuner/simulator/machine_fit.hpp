#pragma once

#include <optional>
#include <string>

#include "core/vocabulary/machine_model.hpp"

namespace dynamiccl {

/// What the library of a fitted machine should take, from the calls that were measured:
///   an operation that was measured    on the line between the two nearest counts of bytes over the
///                                     busiest link (size times nccl-tests' factor); below the
///                                     smallest it takes as long, above the largest the line goes
///                                     on
///   one that was not                  the median of what the others take for as many bytes
///   a count of ranks that was not     the nearest one's calls
struct LibraryTime {
  double us = 0;
  HeldOut like = HeldOut::sizes;  ///< whose error it has: the farthest from what was measured
};
/// @returns nullopt where no call of several ranks is known
std::optional<LibraryTime> library_time(const MeasuredLibrary& library, Collective collective,
                                        int ranks, double bytes);

/// Fills in what leaving out sizes, operations and counts of ranks in turn gives.
void hold_out(MeasuredLibrary& library);

/// Sets latency and bandwidth of the machine's first link so that the fastest model of each
/// measured call is nearest to it, and the error of calls whose operation was left out.
/// @param machine whose ranks are one node's
/// @throws Error(input) where its calls have fewer than two sizes or operations with a model
void fit_links(MachineModel& machine);

/// The machine as a file that parse_machine_model() reads.
/// @param source the run, in words
std::string machine_toml(const MachineModel& machine, const std::string& source);

}  // namespace dynamiccl
