#pragma once

#include <string>
#include <vector>

#include "core/statistics/verdict.hpp"
#include "reports/model/figures.hpp"

namespace dynamiccl {

/// "12 % of the time in bare-metal, 71 % in single-docker": how long ranks waited for a core, half
/// of an environment's cells less, of many environments the first and the most; "" where that is
/// less than 1 % everywhere, or not known.
std::string waits_of(const std::vector<CellFigure>& figures);

/// What a run on a busy machine is to be read with: how long ranks waited, how many of its ratios
/// are not judged for it, and what to do. "" where no rank waited in a launch that the noise gate
/// flagged.
std::string busy_machine(const std::vector<CellFigure>& figures, const std::vector<Ratio>& ratios,
                         const std::vector<Verdict>& verdicts);

}  // namespace dynamiccl
