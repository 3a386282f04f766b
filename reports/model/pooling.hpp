#pragma once

#include <cstdint>
#include <vector>

#include "db/reader.hpp"
#include "reports/model/figures.hpp"

namespace dynamiccl {

/// Blocks that were measured one after the other as runs of their own, as one run: launches of the
/// same cell stand together, their blocks apart. Bears the newest run's id; a cell that an older
/// run timed by another cadence is a figure of its own, with the id of the newest run that did.
/// @param runs row keys of run, the newest first; what `figures` came from
/// @throws Error(input) when the runs differ in the machine (processors, kernel, GPUs and their
/// driver), in the tool, or in a part of the protocol that changes what a launch measures
std::vector<CellFigure> pool_runs(const Reader& reader, const std::vector<std::int64_t>& runs,
                                  const std::vector<CellFigure>& figures);

}  // namespace dynamiccl
