#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "core/vocabulary/error.hpp"
#include "profiles/strict_toml.hpp"

namespace dynamiccl {

/// A table of the file by its dotted path, with errors that name what is missing.
class Study {
 public:
  Study(const toml::table& root, std::string path, const std::string& source)
      : table_(root.at_path(path)), path_(std::move(path)), source_(source) {
    if (!table_.is_table()) missing("");
  }
  [[nodiscard]] double number(const std::string& key) const {
    const auto value = table_.at_path(key).value<double>();
    if (!value) missing(key);
    return *value;
  }
  [[nodiscard]] std::string text(const std::string& key) const {
    const auto value = table_[key].value<std::string>();
    if (!value) missing(key);
    return *value;
  }
  /// Calls `use` with each row of an array of tables.
  template <class Use>
  void each(const std::string& key, Use use) const {
    const toml::array* rows = table_[key].as_array();
    if (rows == nullptr) missing(key);
    for (const auto& row : *rows)
      if (const auto* table = row.as_table()) use(*table);
  }
  /// Calls `use` with each text of an array.
  template <class Use>
  void each_text(const std::string& key, Use use) const {
    const toml::array* lines = table_[key].as_array();
    if (lines == nullptr) missing(key);
    for (const auto& line : *lines) use(line.value_or(std::string()));
  }

 private:
  [[noreturn]] void missing(const std::string& key) const {
    throw Error(ErrorKind::data,
                fmt::format("{}: {}{}{} is missing", source_, path_, key.empty() ? "" : ".", key));
  }

  toml::node_view<const toml::node> table_;
  std::string path_;
  std::string source_;
};

inline std::string text_of(const toml::table& row, std::string_view key) {
  return row[key].value_or(std::string());
}

inline double number_of(const toml::table& row, std::string_view key) {
  return row[key].value_or(0.0);
}

}  // namespace dynamiccl
