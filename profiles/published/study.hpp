#pragma once

#include <fmt/format.h>

#include <string>

#include "profiles/strict_toml.hpp"
#include "profiles/table_reader.hpp"

namespace dynamiccl {

/// A table of this program's own figures, read by TableReader: what is asked for must be there, and
/// all that is not is reported at once, by Mistakes::raise().
class Study {
 public:
  /// @param path dotted, from the file's top level
  Study(TableReader& root, const std::string& path) : path_(path) {
    TableReader* at = &root;
    for (const auto& part : split(path, '.')) {
      auto next = at->table(part);
      if (!next) {
        if (!at->has(part)) at->complain(part, path + " is missing");
        table_.reset();
        return;
      }
      table_.emplace(*next);
      at = &*table_;
    }
  }
  Study(std::string path, const TableReader& table) : table_(table), path_(std::move(path)) {}

  double number(const std::string& key) {
    return find(key) ? table_->number(key, -kLargest, kLargest).value_or(0) : 0;
  }
  std::string text(const std::string& key) {
    return find(key) ? table_->text(key, Lines::many).value_or("") : "";
  }
  void complain(const std::string& key, const std::string& message) {
    if (table_) table_->complain(key, message);
  }
  /// Absent reads as false.
  bool flag(const std::string& key) { return table_ && table_->boolean(key).value_or(false); }
  /// Calls `use` with each row of an array of tables.
  template <class Use>
  void each(const std::string& key, Use use) {
    if (!find(key)) return;
    for (auto& row : table_->tables(key)) {
      Study one(path_ + "." + key, row);
      use(one);
    }
  }
  /// Calls `use` with each text of an array.
  template <class Use>
  void each_text(const std::string& key, Use use) {
    if (!find(key)) return;
    for (const auto& line : table_->texts(key, Lines::many)) use(line);
  }
  /// The keys that stand there.
  std::vector<std::string> keys() { return table_ ? table_->keys() : std::vector<std::string>{}; }
  /// One number, or the first and last of a list.
  std::pair<double, double> range(const std::string& key) {
    if (!table_) return {0, 0};
    const auto* list = table_->raw()[key].as_array();
    if (list == nullptr || list->empty()) {
      const double one = number(key);
      return {one, one};
    }
    return {list->front().value_or(0.0), list->back().value_or(0.0)};
  }

 private:
  static constexpr double kLargest = 1e300;

  bool find(const std::string& key) {
    if (!table_) return false;
    if (!table_->has(key)) table_->complain(key, fmt::format("{}.{} is missing", path_, key));
    return table_->has(key);
  }

  std::optional<TableReader> table_;
  std::string path_;
};

}  // namespace dynamiccl
