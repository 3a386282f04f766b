#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "db/reader.hpp"
#include "profiles/detect/binding_check.hpp"
#include "reports/model/figures.hpp"

namespace dynamiccl {

/// Where the ranks of a launch were let run.
struct LaunchPlacement {
  std::int64_t launch_row = 0;  ///< row key of launch
  CellFigure group;             ///< the axes of its group alone
  CorePlacement placement;
};

/// Launches that ended well and whose ranks recorded it, in the order of launching.
std::vector<LaunchPlacement> launch_placements(const Reader& reader, const std::string& run_uuid);

}  // namespace dynamiccl
