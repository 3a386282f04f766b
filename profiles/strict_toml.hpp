#pragma once

#include <toml++/toml.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/vocabulary/units.hpp"
#include "core/vocabulary/vocabulary.hpp"

namespace dynamiccl {

/// Refuses a key or [header] of more parts than any of ours: what walks such a tree, toml++ itself
/// among them, calls itself once per part. @throws Error(input) as parse_toml
void check_key_parts(const std::string& text, const std::string& source);

/// Parses TOML. @throws Error(input) as `source:line:col: ...`
toml::table parse_toml(const std::string& text, const std::string& source);

/// Reads a whole file. @throws Error(input) when it cannot be read or is larger than 16 MiB
std::string read_input_file(const std::string& path);

/// A TOML table in which every key must be asked for: finish() names the others as unknown, with
/// the nearest known key. All getters throw Error(input) as `source:line:col: ...` on a wrong type
/// or range and return nullopt where the key is absent. The TOML tree must outlive the object.
class StrictTable {
 public:
  /// @param what what the table is, for messages: "the profile"
  StrictTable(const toml::table& table, std::string source, std::string what);

  std::optional<std::string> text(std::string_view key);
  std::optional<bool> boolean(std::string_view key);
  std::optional<std::int64_t> integer(std::string_view key, std::int64_t low, std::int64_t high);
  std::optional<double> number(std::string_view key, double low, double high);
  /// "64KiB" or a whole number of bytes.
  std::optional<Bytes> size(std::string_view key);
  std::optional<std::vector<std::string>> texts(std::string_view key);
  std::optional<StrictTable> table(std::string_view key);
  /// An array of tables, `[[key]]` or `key = [{...}, {...}]`.
  std::optional<std::vector<StrictTable>> tables(std::string_view key);
  /// A word of a vocabulary table.
  template <class E>
  std::optional<E> named(std::string_view key) {
    const auto word = text(key);
    if (!word) return std::nullopt;
    if (const auto value = find_named<E>(*word)) return value;
    fail(key, "unknown " + std::string(NameTable<E>::what) + " \"" + *word + "\"; " +
                  suggestion(*word, all_names<E>()));
  }
  /// @throws Error(input) when the key is absent
  std::string required_text(std::string_view key);

  [[nodiscard]] bool has(std::string_view key) const { return table_->contains(key); }
  /// Sorted by name.
  [[nodiscard]] std::vector<std::string> keys() const;
  [[nodiscard]] const toml::table& raw() const { return *table_; }
  [[nodiscard]] const std::string& source() const { return source_; }

  /// @throws Error(input) for the first key nobody asked for
  void finish() const;
  /// @throws Error(input) pointing at the key's value, or at the table when the key is absent
  [[noreturn]] void fail(std::string_view key, const std::string& message) const;
  [[noreturn]] void fail(const std::string& message) const;

 private:
  const toml::node* take(std::string_view key);
  [[noreturn]] void wrong_type(std::string_view key, std::string_view expected) const;

  const toml::table* table_;
  std::string source_;
  std::string what_;
  std::set<std::string, std::less<>> asked_;
};

}  // namespace dynamiccl
