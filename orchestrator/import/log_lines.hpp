#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dynamiccl {

/// A line of a program's output without what launchers and log collectors put around it.
struct LogLine {
  std::size_t number = 0;  ///< in the file, from 1
  std::string text;        ///< blanks before it are kept: columns are read by place
};

/// Bytes as UTF-8 text: byte order marks go, UTF-16 is converted.
/// @throws Error(data) with file:line for what is neither
std::string decoded_text(const std::string& bytes, const std::string& path);

/// The lines of a text without rank tags (also in the middle of a line), time stamps, names of pods
/// and nodes, quoting and colours. What stands before a table's heading is taken off every line
/// that begins in the same form; other lines stay as they are.
/// @throws Error(data) with file:line for a line longer than any program prints, and when several
/// programs that do not know each other wrote into each other's tables
std::vector<LogLine> log_lines(const std::string& text, const std::string& path);

}  // namespace dynamiccl
