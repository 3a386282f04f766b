#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dynamiccl {

// Parts of log_lines(): each puts one thing right that stands between a program's output and a
// reader of its lines.

/// Where the heading of a table begins in a line: at the '#' of nccl-tests, OSU and the Intel MPI
/// Benchmarks; npos where there is none.
std::size_t heading_place(std::string_view line);

/// Bytes of an encoding ("UTF-16LE") as UTF-8, as far as they are text.
/// @param bad set to the place of the first byte that is none, npos where all is
std::string utf8_from(std::string_view bytes, const char* encoding, std::size_t& bad);

/// The lines of a table that a document has in its texts, "stdout": "# OSU ...\n# Size ...\n";
/// empty where the line is no such document.
std::vector<std::string> lines_within(const std::string& line);

/// Rows that other threads wrote log lines of NCCL into are put together again; a line that became
/// part of another is left empty. Where a row cannot be distinguished from the name of the host
/// with which the log line begins ("-13node" is -1 or -13), it stays as it is.
void mend_rows(std::vector<std::string*>& lines);

/// A table pasted from a page or a spreadsheet: cells between bars, semicolons or commas.
class CellTable {
 public:
  /// The line with blanks between its cells, as programs print it; other lines as they are.
  std::string read(const std::string& line);

 private:
  char sign_ = '|';
  std::size_t columns_ = 0;  ///< 0 = no heading yet
};

/// Ends that quoting leaves: `",`, `'`, `\n'`.
std::string without_quotes_behind(std::string line);

}  // namespace dynamiccl
