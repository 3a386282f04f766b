#include "profiles/strict_toml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string_view>

#include "core/vocabulary/error.hpp"
#include "core/vocabulary/file_text.hpp"

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
    return parse_toml_text(text, source);
  } catch (const toml::parse_error& error) {
    throw Error(ErrorKind::input,
                fmt::format("{}: {}{}", place(source, error.source()), error.description(),
                            error.description().find("control characters") != std::string_view::npos
                                ? "; is a quote missing at the end of this line?"
                                : ""));
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
  auto text = read_file(path);
  if (!text) throw Error(ErrorKind::input, fmt::format("{}: cannot be read", path));
  return *std::move(text);
}

}  // namespace dynamiccl
