#pragma once

#include <string>

#include "core/vocabulary/json.hpp"

namespace dynamiccl {

/// facts[section][key], or null where either is absent or has another shape: facts come from files
/// that may be damaged.
inline const nlohmann::json& fact(const nlohmann::json& facts, const char* section,
                                  const char* key) {
  static const nlohmann::json kAbsent;
  if (!facts.is_object()) return kAbsent;
  const auto found = facts.find(section);
  if (found == facts.end() || !found->is_object()) return kAbsent;
  const auto value = found->find(key);
  return value == found->end() ? kAbsent : *value;
}

/// A text fact, "" where it is absent.
inline std::string fact_text(const nlohmann::json& facts, const char* section, const char* key) {
  const nlohmann::json& value = fact(facts, section, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

/// Why facts[section][key] is not known.
inline std::string fact_reason(const nlohmann::json& facts, const char* section, const char* key) {
  const nlohmann::json& unknown = fact(facts, section, "unknown");
  if (unknown.is_object())
    for (const char* name : {key, "*"})
      if (const auto found = unknown.find(name); found != unknown.end() && found->is_string())
        return found->get<std::string>();
  return "not recorded";
}

/// An environment variable as the rank had it, "" where it was not set.
inline std::string variable(const nlohmann::json& facts, const char* name) {
  const nlohmann::json& variables = fact(facts, "environment", "variables");
  if (!variables.is_object()) return "";
  const auto found = variables.find(name);
  return found != variables.end() && found->is_string() ? found->get<std::string>() : "";
}

/// What two ranks compare of a namespace: its inode, or the file system of /dev/shm for "shm".
inline const nlohmann::json& namespace_identity(const nlohmann::json& facts,
                                                const std::string& name) {
  return name == "shm" ? fact(facts, "shm", "device") : fact(facts, "namespaces", name.c_str());
}

}  // namespace dynamiccl
