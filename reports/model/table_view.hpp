#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "db/table.hpp"

namespace dynamiccl {

/// @returns the column's index, nullopt when the table has none of that name
std::optional<std::size_t> column_index(const Table& table, std::string_view name);

/// Reads values by column name. Refers to the table, which must outlive it and keep its columns.
class TableView {
 public:
  explicit TableView(const Table& table);
  [[nodiscard]] std::size_t size() const { return table_.rows.size(); }
  /// @throws Error(bug) without such a column, Error(data) without such a row; "" for NULL
  [[nodiscard]] std::string text(std::size_t row, std::string_view column) const;
  /// 0 for NULL
  [[nodiscard]] std::int64_t integer(std::size_t row, std::string_view column) const;
  [[nodiscard]] std::optional<double> real(std::size_t row, std::string_view column) const;

 private:
  [[nodiscard]] const Value& at(std::size_t row, std::string_view column) const;

  const Table& table_;
  std::unordered_map<std::string_view, std::size_t> columns_;  ///< of equal names the first
};

/// A value as plain text: "" for NULL, the shortest text that reads back as the same number.
std::string plain_text(const Value& value);

/// NULL for nullopt.
Value or_null(const std::optional<double>& value);
Value or_null(const std::string& text);

}  // namespace dynamiccl
