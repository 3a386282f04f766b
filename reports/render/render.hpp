#pragma once

#include <cstddef>
#include <string>

#include "db/table.hpp"
#include "reports/model/column.hpp"

namespace dynamiccl {

/// text and markdown are for people: times, sizes and bandwidths with fitting units, a value and
/// its interval in one column. csv (RFC 4180) and json (a list of objects) keep the plain numbers.
enum class OutputFormat { text, markdown, csv, json };

/// @param columns what the table's columns hold, by name; none = the shared ones. For people only.
/// @param width  text only: columns of the terminal. A wider table gives regimes short names with a
/// legend and runs the beginnings of their ids, then breaks headings and its cells of text into
/// lines; columns that still have no room stand below the row's first ones, further in; 0 = no
/// limit. What all rows have in common stands above
/// @returns the table, ending in a newline
std::string render_table(const Table& table, OutputFormat format, const Columns& columns = {},
                         std::size_t width = 0);

}  // namespace dynamiccl
