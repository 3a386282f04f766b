#include "profiles/strict_toml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

namespace dynamiccl {
namespace {

constexpr std::uintmax_t kMaxFileBytes = std::uintmax_t{16} << 20;

/// Inline tables nest at most 256 deep in toml++, each with such a key.
constexpr int kMostKeyParts = 16;

std::string place(const std::string& source, const toml::source_region& region) {
  // What was given on the command line stands in no file.
  if (region.path && region.path->starts_with("--")) return *region.path;
  // Tables made by the program itself (overrides) have no line.
  if (region.begin.line == 0) return source;
  return fmt::format("{}:{}:{}", source, region.begin.line, region.begin.column);
}

std::string_view type_name(toml::node_type type) {
  switch (type) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a floating-point number";
    case toml::node_type::boolean:
      return "a boolean";
    default:
      return "a date or time";
  }
}

/// Where the quoted text that begins at `at` has ended.
std::size_t end_of_quoted(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const std::string triple(3, quote);
  const bool many_lines = text.substr(at, 3) == triple;
  for (std::size_t i = at + (many_lines ? 3 : 1); i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"') {
      ++i;
    } else if (many_lines && text.substr(i, 3) == triple) {
      // Up to two quotes may stand before those that end it.
      return std::min(text.find_first_not_of(quote, i), i + 5);
    } else if (!many_lines && (text[i] == quote || text[i] == '\n')) {
      return i + 1;
    }
  }
  return text.size();
}

}  // namespace

void check_key_parts(const std::string& text, const std::string& source) {
  constexpr std::string_view kKey =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-. \t";
  int parts = 1;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '"' || c == '\'') {
      i = end_of_quoted(text, i);
      continue;
    }
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
      continue;
    }
    if (kKey.find(c) == std::string_view::npos) parts = 1;
    if (c == '.' && ++parts > kMostKeyParts) {
      toml::source_region where;
      const std::size_t line_start = text.rfind('\n', i) + 1;
      where.begin.line =
          static_cast<toml::source_index>(1 + std::count(text.begin(), text.begin() + i, '\n'));
      where.begin.column = static_cast<toml::source_index>(i - line_start + 1);
      where.path = std::make_shared<const std::string>(source);
      throw Error(ErrorKind::input,
                  fmt::format("{}: a key of more than {} parts; none that is known has so many",
                              place(source, where), kMostKeyParts));
    }
    ++i;
  }
}

toml::table parse_toml(const std::string& text, const std::string& source) {
  check_key_parts(text, source);
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    throw Error(ErrorKind::input,
                fmt::format("{}: {}", place(source, error.source()), error.description()));
  }
}

std::string read_input_file(const std::string& path) {
  std::error_code code;
  const auto bytes = std::filesystem::file_size(path, code);
  if (code)
    throw Error(ErrorKind::input, fmt::format("{}: cannot be read: {}", path, code.message()));
  if (bytes > kMaxFileBytes)
    throw Error(ErrorKind::input, fmt::format("{}: {} bytes, more than the {} an input file may be",
                                              path, bytes, kMaxFileBytes));
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw Error(ErrorKind::input, fmt::format("{}: cannot be read", path));
  return text.str();
}

StrictTable::StrictTable(const toml::table& table, std::string source, std::string what)
    : table_(&table), source_(std::move(source)), what_(std::move(what)) {}

const toml::node* StrictTable::take(std::string_view key) {
  asked_.emplace(key);
  return table_->get(key);
}

void StrictTable::fail(std::string_view key, const std::string& message) const {
  const toml::node* node = table_->get(key);
  const toml::source_region& region = node != nullptr ? node->source() : table_->source();
  throw Error(ErrorKind::input, fmt::format("{}: {}", place(source_, region), message));
}

void StrictTable::fail(const std::string& message) const {
  throw Error(ErrorKind::input, fmt::format("{}: {}", place(source_, table_->source()), message));
}

void StrictTable::wrong_type(std::string_view key, std::string_view expected) const {
  const toml::node* node = table_->get(key);
  fail(key, fmt::format("\"{}\" in {} must be {}, not {}", key, what_, expected,
                        node != nullptr ? type_name(node->type()) : "absent"));
}

std::optional<std::string> StrictTable::text(std::string_view key) {
  const toml::node* node = take(key);
  if (node == nullptr) return std::nullopt;
  if (!node->is_string()) wrong_type(key, "a string");
  return node->as_string()->get();
}

std::string StrictTable::required_text(std::string_view key) {
  auto value = text(key);
  if (!value) fail(key, fmt::format("{} needs the key \"{}\" (a string)", what_, key));
  if (trim(*value).empty()) fail(key, fmt::format("\"{}\" in {} must not be empty", key, what_));
  return *std::move(value);
}

std::optional<bool> StrictTable::boolean(std::string_view key) {
  const toml::node* node = take(key);
  if (node == nullptr) return std::nullopt;
  if (!node->is_boolean()) wrong_type(key, "true or false");
  return node->as_boolean()->get();
}

std::optional<std::int64_t> StrictTable::integer(std::string_view key, std::int64_t low,
                                                 std::int64_t high) {
  const toml::node* node = take(key);
  if (node == nullptr) return std::nullopt;
  if (!node->is_integer()) wrong_type(key, "an integer");
  const std::int64_t value = node->as_integer()->get();
  if (value < low || value > high)
    fail(key, fmt::format("\"{}\" in {} is {}, outside {}..{}", key, what_, value, low, high));
  return value;
}

std::optional<double> StrictTable::number(std::string_view key, double low, double high) {
  const toml::node* node = take(key);
  if (node == nullptr) return std::nullopt;
  if (!node->is_number()) wrong_type(key, "a number");
  const double value = node->is_integer() ? static_cast<double>(node->as_integer()->get())
                                          : node->as_floating_point()->get();
  if (!std::isfinite(value) || value < low || value > high)
    fail(key, fmt::format("\"{}\" in {} is {}, outside {}..{}", key, what_, value, low, high));
  return value;
}

std::optional<Bytes> StrictTable::size(std::string_view key) {
  const toml::node* node = take(key);
  if (node == nullptr) return std::nullopt;
  if (const auto* whole = node->as_integer()) {
    if (whole->get() < 0) fail(key, fmt::format("\"{}\" in {} is negative", key, what_));
    return Bytes(static_cast<std::uint64_t>(whole->get()));
  }
  if (!node->is_string()) wrong_type(key, "a size such as \"64KiB\", or a number of bytes");
  try {
    return parse_bytes(node->as_string()->get());
  } catch (const Error& error) {
    fail(key, fmt::format("\"{}\" in {}: {}", key, what_, error.what()));
  }
}

std::optional<std::vector<std::string>> StrictTable::texts(std::string_view key) {
  const toml::node* node = take(key);
  if (node == nullptr) return std::nullopt;
  const auto* array = node->as_array();
  if (array == nullptr) wrong_type(key, "an array of strings");
  std::vector<std::string> values;
  for (const toml::node& element : *array) {
    if (!element.is_string())
      throw Error(ErrorKind::input, fmt::format("{}: \"{}\" in {} must hold strings only, not {}",
                                                place(source_, element.source()), key, what_,
                                                type_name(element.type())));
    values.push_back(element.as_string()->get());
  }
  return values;
}

std::optional<StrictTable> StrictTable::table(std::string_view key) {
  const toml::node* node = take(key);
  if (node == nullptr) return std::nullopt;
  if (!node->is_table()) wrong_type(key, "a table");
  return StrictTable(*node->as_table(), source_, fmt::format("[{}]", key));
}

std::optional<std::vector<StrictTable>> StrictTable::tables(std::string_view key) {
  const toml::node* node = take(key);
  if (node == nullptr) return std::nullopt;
  const auto* array = node->as_array();
  if (array == nullptr) wrong_type(key, "an array of tables");
  std::vector<StrictTable> values;
  for (const toml::node& element : *array) {
    if (!element.is_table())
      throw Error(ErrorKind::input, fmt::format("{}: \"{}\" in {} must hold tables only, not {}",
                                                place(source_, element.source()), key, what_,
                                                type_name(element.type())));
    values.emplace_back(*element.as_table(), source_, fmt::format("[[{}]]", key));
  }
  return values;
}

std::vector<std::string> StrictTable::keys() const {
  std::vector<std::string> names;
  for (const auto& [key, value] : *table_) names.emplace_back(key.str());
  return names;
}

void StrictTable::finish() const {
  for (const auto& [key, value] : *table_) {
    if (asked_.contains(key.str())) continue;
    const std::vector<std::string> known(asked_.begin(), asked_.end());
    throw Error(ErrorKind::input,
                fmt::format("{}: unknown key \"{}\" in {}; {}", place(source_, key.source()),
                            key.str(), what_, suggestion(key.str(), known)));
  }
}

}  // namespace dynamiccl
