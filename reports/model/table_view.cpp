#include "reports/model/table_view.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/vocabulary/error.hpp"

namespace dynamiccl {

std::optional<std::size_t> column_index(const Table& table, std::string_view name) {
  const auto found = std::find(table.columns.begin(), table.columns.end(), name);
  if (found == table.columns.end()) return std::nullopt;
  return static_cast<std::size_t>(found - table.columns.begin());
}

TableView::TableView(const Table& table) : table_(table) {
  for (std::size_t i = 0; i < table.columns.size(); ++i) columns_.emplace(table.columns[i], i);
}

const Value& TableView::at(std::size_t row, std::string_view column) const {
  const auto index = columns_.find(column);
  DYN_ASSERT(index != columns_.end(), "a report reads only columns that its query gives");
  // Rows that belong together are asked for as if all were there.
  if (row >= table_.rows.size())
    throw Error(ErrorKind::data,
                fmt::format("the database lacks a row that belongs to what was asked for (its {}): "
                            "it was damaged or another program changed it; use a copy of it",
                            column));
  return table_.rows[row].at(index->second);
}

std::string TableView::text(std::size_t row, std::string_view column) const {
  return plain_text(at(row, column));
}

std::int64_t TableView::integer(std::size_t row, std::string_view column) const {
  const Value& value = at(row, column);
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return *whole;
  if (const auto* real = std::get_if<double>(&value)) return static_cast<std::int64_t>(*real);
  return 0;
}

std::optional<double> TableView::real(std::size_t row, std::string_view column) const {
  const Value& value = at(row, column);
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  return std::nullopt;
}

std::string plain_text(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return std::to_string(*whole);
  if (const auto* real = std::get_if<double>(&value)) return fmt::format("{}", *real);
  return "";
}

Value or_null(const std::optional<double>& value) {
  if (value) return *value;
  return std::monostate{};
}

Value or_null(const std::string& text) {
  if (text.empty()) return std::monostate{};
  return text;
}

}  // namespace dynamiccl
