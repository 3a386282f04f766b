#pragma once

#include <string>

#include "db/table.hpp"
#include "reports/model/column.hpp"

namespace dynamiccl {

/// text and markdown are for people: times, sizes and bandwidths with fitting units, a value and
/// its interval in one column. csv (RFC 4180) and json (a list of objects) keep the plain numbers.
enum class OutputFormat { text, markdown, csv, json };

/// @param columns what the table's columns hold, by name; none = the shared ones. For people only.
/// @returns the table, ending in a newline
std::string render_table(const Table& table, OutputFormat format, const Columns& columns = {});

}  // namespace dynamiccl
