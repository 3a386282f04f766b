#include "profiles/toml_parser.hpp"

#include <algorithm>
#include <memory>
#include <vector>

namespace dynamiccl {
namespace {

bool breaks_an_assumption(const std::string& text) {
  try {
    [[maybe_unused]] const auto table = toml::parse(text);
  } catch (const TomlAssumption&) {
    return true;
  } catch (const toml::parse_error&) {
  }
  return false;
}

/// The parser goes from the front to the back: the first line with which it fails is the one.
std::size_t line_of_assumption(const std::string& text) {
  std::vector<std::size_t> line_ends;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] == '\n') line_ends.push_back(i + 1);
  const auto line = std::partition_point(line_ends.begin(), line_ends.end(), [&](std::size_t end) {
    return !breaks_an_assumption(text.substr(0, end));
  });
  return static_cast<std::size_t>(line - line_ends.begin()) + 1;
}

}  // namespace

void throw_toml_assumption(const char* expression) { throw TomlAssumption(expression); }

toml::table parse_toml_text(const std::string& text, const std::string& source) {
  try {
    return toml::parse(text, source);
  } catch (const TomlAssumption&) {
    toml::source_position where;
    where.line = static_cast<toml::source_index>(line_of_assumption(text));
    where.column = 1;
    throw toml::parse_error("expected a key or a value", where,
                            std::make_shared<const std::string>(source));
  }
}

}  // namespace dynamiccl
