#pragma once

#include <string>

#include "db/reader.hpp"

namespace dynamiccl {

/// The report of a run as one HTML page that needs nothing else: charts, tables, causes,
/// provenance.
std::string render_report_html(const Reader& reader, const std::string& run_id);

}  // namespace dynamiccl
