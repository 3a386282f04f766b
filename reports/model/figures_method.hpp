#pragma once

#include <string>
#include <vector>

#include "reports/model/figures.hpp"

namespace dynamiccl {

/// How the figures were made, in one line: what stands under every table and chart.
/// @param figures at least one
std::string figures_method(const std::vector<const CellFigure*>& figures,
                           const BareMetal& bare_metal);

}  // namespace dynamiccl
