#pragma once

#include <string>
#include <vector>

#include "db/table.hpp"
#include "reports/model/column.hpp"

namespace dynamiccl {

/// A table ready to be read: all text, numbers to be aligned right.
struct HumanTable {
  std::vector<std::string> columns;
  std::vector<bool> right;    ///< by column
  std::vector<bool> if_room;  ///< by column: may be left out of a narrow table
  std::vector<std::vector<std::string>> rows;
  std::string held_fixed;  ///< "datatype float32, ranks 2": columns with one value, or ""
};

/// Gives the columns' units, joins a value and its interval into "x [low, high]", and takes
/// settings that are the same in all rows out of the rows.
/// @param columns what the table's columns hold, by name; none = the shared ones
HumanTable humanise(const Table& table, const Columns& columns = {});

/// Control characters from a library's message must not break lines or move the cursor.
std::string one_line(std::string text);

/// Text that Markdown shows as it is, without breaking a table or adding HTML.
std::string markdown_text(const std::string& text);

/// "1.23 GB/s": decimal, as link speeds are.
std::string format_bandwidth(double bytes_per_s);

/// Three significant digits.
std::string format_number(double value);

}  // namespace dynamiccl
