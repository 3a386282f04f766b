#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace dynamiccl {

/// The heading of a table of nccl-tests or its kin and where its columns end in the line.
class NcclHeading {
 public:
  NcclHeading() = default;
  /// @param line from its '#' on; @param indent blanks before the '#'
  NcclHeading(const std::string& line, std::size_t indent);

  /// True where a line is the heading of such a table.
  static bool is_heading(const std::string& line);

  [[nodiscard]] const std::vector<std::string>& columns() const { return columns_; }
  [[nodiscard]] bool empty() const { return columns_.empty(); }
  /// Columns of times, one per direction of buffers.
  [[nodiscard]] std::vector<std::size_t> times() const;
  /// The place of a column from `from` on.
  [[nodiscard]] std::optional<std::size_t> place(const std::string& name,
                                                 std::size_t from = 0) const;

  /// The values of a line by column; nullopt for a column that is blank there. As many values as
  /// columns are read in order, fewer by their place in the line and by what a column can hold.
  /// An empty result: the line does not fit.
  [[nodiscard]] std::vector<std::optional<std::string>> values(const std::string& line) const;
  /// True for a line in the form of a row, whatever its numbers are.
  [[nodiscard]] bool is_row(const std::string& line) const;

 private:
  std::vector<std::string> columns_;
  std::vector<std::size_t> ends_;
};

}  // namespace dynamiccl
