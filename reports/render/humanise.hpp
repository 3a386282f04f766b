#pragma once

#include <string>
#include <vector>

#include "db/table.hpp"

namespace dynamiccl {

/// A table ready to be read: all text, numbers to be aligned right.
struct HumanTable {
  std::vector<std::string> columns;
  std::vector<bool> right;  ///< by column
  std::vector<std::vector<std::string>> rows;
  std::string held_fixed;  ///< "datatype float32, ranks 2": columns with one value (G-26), or ""
};

/// Gives units by the column's suffix (_us, _bytes, _bytes_per_s, _s, _percent), joins x, x_low and
/// x_high into "x [low, high]", and takes settings that are the same in all rows out of the rows.
HumanTable humanise(const Table& table);

/// Control characters from a library's message must not break lines or move the cursor.
std::string one_line(std::string text);

/// Text that Markdown shows as it is, without breaking a table or adding HTML.
std::string markdown_text(const std::string& text);

/// "1.23 GB/s": decimal, as link speeds are.
std::string format_bandwidth(double bytes_per_s);

/// Three significant digits.
std::string format_number(double value);

}  // namespace dynamiccl
