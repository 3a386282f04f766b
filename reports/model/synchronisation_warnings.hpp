#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "db/reader.hpp"
#include "reports/model/figures.hpp"

namespace dynamiccl {

/// What is known to be a bad choice: plain synchronous steps with gradients as they are over links
/// of tier 4. One sentence per environment, model and batch; empty where none is.
/// @param figures of the run
std::vector<std::string> synchronisation_warnings(const Reader& reader, std::int64_t run_row,
                                                  const std::vector<CellFigure>& figures);

}  // namespace dynamiccl
