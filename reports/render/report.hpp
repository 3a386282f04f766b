#pragma once

#include <string>

#include "db/reader.hpp"
#include "reports/render/render.hpp"

namespace dynamiccl {

/// The report of a run as one Markdown document.
std::string render_report_markdown(const Reader& reader, const std::string& run_id);

/// All figures of a run as one table, csv or json: a row per cell.
std::string render_report_figures(const Reader& reader, const std::string& run_id,
                                  OutputFormat format);

}  // namespace dynamiccl
