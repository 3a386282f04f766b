#pragma once

#include <string>

#include "db/reader.hpp"
#include "reports/render/render.hpp"

namespace dynamiccl {

/// `show --diff A B`: settings, host, profiles, images and libraries that differ, then the figures
/// of both side by side. csv gives the figures alone.
/// @param width of the text's tables, as render_table has it
std::string render_run_diff(const Reader& reader, const std::string& a, const std::string& b,
                            OutputFormat format, std::size_t width = 0);

}  // namespace dynamiccl
