#pragma once

#include <string>

#include "core/vocabulary/json.hpp"
#include "db/reader.hpp"

namespace dynamiccl {

/// The report of a run as one HTML page that needs nothing else: charts, tables, causes,
/// provenance.
std::string render_report_html(const Reader& reader, const std::string& run_id);

/// What that page draws, before any of it is drawn: "cells", "counts" and "sections".
nlohmann::json report_page_data(const Reader& reader, const std::string& run_id);

}  // namespace dynamiccl
