#include <fmt/format.h>

#include "profiles/strict_toml.hpp"
#include "profiles/table_reader.hpp"

namespace dynamiccl {
namespace {

/// Moves, as copying a toml++ node forgets where it stood.
void place(toml::table& table, const std::string& key, toml::node&& node) {
  node.visit([&](auto& typed) { table.insert_or_assign(key, std::move(typed)); });
}

void merge(toml::table& into, toml::table&& from, const std::string& override_text);

void merge_into_array(toml::array& into, toml::table&& from, const std::string& override_text) {
  for (auto&& [key, value] : from) {
    const std::string index(key.str());
    const bool number = !index.empty() && index.size() < 7 &&
                        index.find_first_not_of("0123456789") == std::string::npos;
    if (!number || std::stoul(index) >= into.size() || !value.is_table() ||
        !into[std::stoul(index)].is_table()) {
      throw Error(ErrorKind::input,
                  fmt::format("{}: expected an index 0..{} and a key, as in work.0.size",
                              override_text, into.empty() ? 0 : into.size() - 1));
    }
    merge(*into[std::stoul(index)].as_table(), std::move(*value.as_table()), override_text);
  }
}

void merge(toml::table& into, toml::table&& from, const std::string& override_text) {
  for (auto&& [key, value] : from) {
    const std::string name(key.str());
    toml::node* existing = into.get(name);
    if (existing != nullptr && value.is_table() && existing->is_table()) {
      merge(*existing->as_table(), std::move(*value.as_table()), override_text);
    } else if (existing != nullptr && value.is_table() && existing->is_array()) {
      merge_into_array(*existing->as_array(), std::move(*value.as_table()), override_text);
    } else {
      place(into, name, std::move(value));
    }
  }
}

toml::table parse_override(const std::string& text) {
  const std::string source = "--set " + text;
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw Error(ErrorKind::input, fmt::format("{}: expected key=value, as in "
                                              "--set protocol.iterations=50",
                                              source));
  }
  check_key_parts(text, source.size() > 80 ? source.substr(0, 80) + "..." : source);
  try {
    return parse_toml_text(text, source);
  } catch (const toml::parse_error&) {
    std::string quoted = text.substr(0, equals) + "= \"";
    for (const char c : text.substr(equals + 1)) {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
    try {
      return parse_toml_text(quoted + "\"", source);
    } catch (const toml::parse_error& error) {
      throw Error(ErrorKind::input, fmt::format("{}: {}", source, error.description()));
    }
  }
}

}  // namespace

void apply_overrides(toml::table& table, const std::vector<std::string>& overrides) {
  for (const auto& text : overrides) merge(table, parse_override(text), "--set " + text);
}

}  // namespace dynamiccl
