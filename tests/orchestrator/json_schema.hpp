#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <regex>
#include <set>
#include <string>

#include "core/vocabulary/json.hpp"

/// A validator of JSON Schema that knows the keywords which our schemas use and fails on any other.
namespace dynamiccl::testing {

using nlohmann::json;

inline bool has_type(const json& value, const std::string& type) {
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "array") return value.is_array();
  if (type == "null") return value.is_null();
  return type == "object" && value.is_object();
}

inline std::string invalid(const json& value, const json& schema, const std::string& at);

inline std::string invalid_object(const json& value, const json& schema, const std::string& at) {
  if (!value.is_object()) return "";
  const json properties = schema.value("properties", json::object());
  for (const auto& key : schema.value("required", json::array())) {
    if (!value.contains(key.get<std::string>())) return at + " lacks " + key.get<std::string>();
  }
  const json dependencies = schema.value("dependencies", json::object());
  for (const auto& [key, needed] : dependencies.items()) {
    for (const auto& other : needed) {
      if (value.contains(key) && !value.contains(other.get<std::string>()))
        return at + "." + key + " needs " + other.get<std::string>();
    }
  }
  if (value.size() < schema.value("minProperties", std::size_t{0})) return at + " has too few keys";
  for (const auto& [key, inner] : value.items()) {
    if (schema.contains("propertyNames")) {
      const std::string wrong = invalid(key, schema["propertyNames"], at + " key " + key);
      if (!wrong.empty()) return wrong;
    }
    const json rest = schema.value("additionalProperties", json(true));
    const json& inside = properties.contains(key) ? properties[key] : rest;
    if (inside == false) return at + " has unknown key " + key;
    if (inside == true) continue;
    if (const auto wrong = invalid(inner, inside, at + "." + key); !wrong.empty()) return wrong;
  }
  return "";
}

inline std::string invalid_any(const json& value, const json& choices, const std::string& at) {
  std::string first;
  for (const auto& choice : choices) {
    const auto wrong = invalid(value, choice, at);
    if (wrong.empty()) return "";
    if (first.empty()) first = wrong;
  }
  return first;
}

inline std::string invalid_array(const json& value, const json& schema, const std::string& at) {
  if (!value.is_array()) return "";
  if (value.size() < schema.value("minItems", std::size_t{0})) return at + " is too short";
  if (schema.contains("contains") &&
      std::none_of(value.begin(), value.end(),
                   [&](const json& item) { return invalid(item, schema["contains"], at).empty(); }))
    return at + " has none that is asked for";
  for (std::size_t i = 0; i < value.size() && schema.contains("items"); ++i) {
    const auto wrong = invalid(value[i], schema["items"], fmt::format("{}[{}]", at, i));
    if (!wrong.empty()) return wrong;
  }
  return "";
}

inline std::string invalid(const json& value, const json& schema, const std::string& at) {
  static const std::set<std::string> known{
      "$schema",  "title",    "description",   "type",
      "enum",     "pattern",  "minimum",       "maximum",
      "minItems", "items",    "minProperties", "propertyNames",
      "required", "anyOf",    "properties",    "additionalProperties",
      "allOf",    "contains", "dependencies",  "exclusiveMinimum"};
  for (const auto& [keyword, ignored] : schema.items()) {
    if (!known.contains(keyword)) return "the validator does not know " + keyword;
  }
  if (schema.contains("type")) {
    const json types = schema["type"].is_array() ? schema["type"] : json::array({schema["type"]});
    const bool fits = std::any_of(types.begin(), types.end(), [&](const json& type) {
      return has_type(value, type.get<std::string>());
    });
    if (!fits) return at + " is no " + types.dump() + ": " + value.dump();
  }
  if (schema.contains("enum")) {
    const json& words = schema["enum"];
    if (std::find(words.begin(), words.end(), value) == words.end())
      return at + " is not in its vocabulary: " + value.dump();
  }
  if (schema.contains("pattern") && value.is_string() &&
      !std::regex_search(value.get<std::string>(),
                         std::regex(schema["pattern"].get<std::string>())))
    return at + " does not look right: " + value.dump();
  if (value.is_number() && (value.get<double>() < schema.value("minimum", -1e300) ||
                            value.get<double>() > schema.value("maximum", 1e300) ||
                            value.get<double>() <= schema.value("exclusiveMinimum", -1e300)))
    return at + " is out of range: " + value.dump();
  if (schema.contains("anyOf")) return invalid_any(value, schema["anyOf"], at);
  for (const auto& all : schema.value("allOf", json::array())) {
    if (const auto wrong = invalid(value, all, at); !wrong.empty()) return wrong;
  }
  const auto wrong = invalid_object(value, schema, at);
  return wrong.empty() ? invalid_array(value, schema, at) : wrong;
}

}  // namespace dynamiccl::testing
