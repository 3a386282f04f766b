#pragma once

#include <cstddef>
#include <string>

#include "reports/compare/comparison.hpp"
#include "reports/render/render.hpp"

namespace dynamiccl {

/// A row per cell: both medians with intervals, ratio with interval, verdict.
Table comparison_table(const Comparison& comparison);
/// For people: table, summary, method, and the provenance that differs.
/// @param width text only: columns of the terminal; 0 = no limit
std::string render_comparison(const Comparison& comparison, OutputFormat format,
                              std::size_t width = 0);
/// Everything, as one JSON object.
std::string comparison_json(const Comparison& comparison, int exit_code);

}  // namespace dynamiccl
