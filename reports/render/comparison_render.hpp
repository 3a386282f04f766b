#pragma once

#include <string>

#include "reports/compare/comparison.hpp"
#include "reports/render/render.hpp"

namespace dynamiccl {

/// A row per cell: both medians with intervals, ratio with interval, verdict.
Table comparison_table(const Comparison& comparison);
/// For people: table, summary, method, and the provenance that differs.
std::string render_comparison(const Comparison& comparison, OutputFormat format);
/// Everything, as one JSON object.
std::string comparison_json(const Comparison& comparison, int exit_code);

}  // namespace dynamiccl
