#pragma once

#include <string>
#include <vector>

#include "orchestrator/import/foreign_table.hpp"

namespace dynamiccl {

/// What --format takes: "auto", the formats of tables, and "dynamiccl" and "decisions", which are
/// ours.
const std::vector<std::string>& import_formats();

/// The format of a file, by what it holds: one of import_formats() but "auto" and "dynamiccl".
/// @throws Error(data) for tables of several formats and for what is none, named where it is known
std::string import_format_of(const std::string& text, const std::string& path);

/// The starts in a text of that format of tables.
/// @throws Error as the format's reader
std::vector<ForeignStart> read_starts(const std::string& format, const std::string& text,
                                      const std::string& path, const ImportOptions& options);

}  // namespace dynamiccl
