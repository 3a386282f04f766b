#pragma once

#include <string>

#include "db/reader.hpp"
#include "reports/render/render.hpp"

namespace dynamiccl {

/// `list`: a row per run, newest first.
Table list_runs(const Reader& reader);

/// `show RUN`: the run, its groups, every launch with status, reason, duration and command, events
/// and provenance. csv gives the launches alone.
/// @param width of the text's tables, as render_table has it
std::string render_run(const Reader& reader, const std::string& run_id, OutputFormat format,
                       std::size_t width = 0);

}  // namespace dynamiccl
