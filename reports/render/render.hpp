#pragma once

#include <string>

#include "db/table.hpp"

namespace dynamiccl {

/// text and markdown are for people: times, sizes and bandwidths with fitting units, a value and
/// its interval in one column. csv (RFC 4180) and json (a list of objects) keep the plain numbers.
enum class OutputFormat { text, markdown, csv, json };

/// @returns the table, ending in a newline
std::string render_table(const Table& table, OutputFormat format);

}  // namespace dynamiccl
