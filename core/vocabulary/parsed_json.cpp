#include "core/vocabulary/parsed_json.hpp"

#include <string>

namespace dynamiccl {
namespace {

using nlohmann::json;

class NestedTooDeep : public json::exception {
 public:
  explicit NestedTooDeep(const std::string& what) : exception(303, what.c_str()) {}
};

/// Exact up to the first mistake, at which the library stops.
bool is_nested_too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (in_string && letter == '\\')
      ++i;
    else if (letter == '"')
      in_string = !in_string;
    else if (!in_string && (letter == '[' || letter == '{') && ++depth > kMostNestedJson)
      return true;
    else if (!in_string && (letter == ']' || letter == '}'))
      --depth;
  }
  return false;
}

}  // namespace

json parsed_json(std::string_view text) {
  if (is_nested_too_deep(text))
    throw NestedTooDeep("nested deeper than " + std::to_string(kMostNestedJson) + " levels");
  return json::parse(text);
}

json json_or_discarded(std::string_view text) {
  if (is_nested_too_deep(text)) return json(json::value_t::discarded);
  return json::parse(text, nullptr, false);
}

}  // namespace dynamiccl
